-- Expressions over the results of OVER, and a filter on them from outside.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, symbol STRING, above DOUBLE, label STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, symbol, price - low, CASE WHEN n >= 3 THEN 'busy' ELSE 'calm' END
FROM (
  SELECT id, symbol, price, MIN(price) OVER w AS low, COUNT(*) OVER w AS n FROM trades
  WINDOW w AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW)
)
WHERE price > low + 20;
