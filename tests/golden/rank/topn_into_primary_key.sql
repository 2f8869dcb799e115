-- A Top-N into a table with the rank in its primary key: changes are folded. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE board (symbol STRING, rn BIGINT, id BIGINT, PRIMARY KEY (symbol, rn) NOT ENFORCED)
WITH ('connector' = 'print');

INSERT INTO board
SELECT symbol, rn, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS rn FROM ticks) WHERE rn <= 5;
