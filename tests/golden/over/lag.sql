-- The value of an earlier row, or the default.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, before_ DOUBLE, third BIGINT, symbol STRING, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, LAG(price) OVER w, LAG(qty, 3, -1) OVER w, LAG(symbol, 1, 'none') OVER w, price FROM trades
WINDOW w AS (PARTITION BY symbol ORDER BY rt);
