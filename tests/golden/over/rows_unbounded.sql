-- ROWS UNBOUNDED PRECEDING: running totals row by row.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, n BIGINT, total DOUBLE, low DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, COUNT(*) OVER w, SUM(price) OVER w, MIN(price) OVER w FROM trades
WINDOW w AS (PARTITION BY symbol ORDER BY rt ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW);
