-- MIN, MAX and FIRST_VALUE of texts, and FILTER.
-- flink: no
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, low STRING, high STRING, f STRING, n BIGINT, qty BIGINT, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, MIN(symbol) OVER a, MAX(symbol) OVER b, FIRST_VALUE(symbol) OVER a,
  COUNT(*) FILTER (WHERE qty > 50) OVER a, SUM(qty) FILTER (WHERE qty > 50) OVER a, MAX(price) FILTER (WHERE qty > 50) OVER a FROM trades
WINDOW a AS (ORDER BY rt RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW),
  b AS (ORDER BY rt ROWS BETWEEN 4 PRECEDING AND CURRENT ROW);
