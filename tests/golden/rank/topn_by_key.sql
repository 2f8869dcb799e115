-- Top-N with its rank: the three dearest ticks of each symbol. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE best (symbol STRING, rn BIGINT, id BIGINT, price DOUBLE)
WITH ('connector' = 'print');

INSERT INTO best
SELECT symbol, rn, id, price
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS rn FROM ticks)
WHERE rn <= 3;
