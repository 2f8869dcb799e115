-- A Top-N of a Top-N. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE best (place BIGINT, symbol STRING, id BIGINT, price DOUBLE)
WITH ('connector' = 'print');

INSERT INTO best
SELECT place, symbol, id, price
FROM (
  SELECT *, ROW_NUMBER() OVER (ORDER BY price, id) AS place
  FROM (
    SELECT symbol, id, price
    FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS rn FROM ticks)
    WHERE rn <= 3))
WHERE place <= 4;
