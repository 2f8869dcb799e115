-- A sum over the newest row of each key. Worked out by DuckDB.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE sums (n BIGINT, total DOUBLE, latest BIGINT)
WITH ('connector' = 'print');

INSERT INTO sums
SELECT COUNT(*), SUM(price), MAX(ts)
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol, qty % 10 ORDER BY rt DESC) AS rn FROM trades)
WHERE rn = 1;
