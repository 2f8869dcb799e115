-- TUMBLE over TIMESTAMP without zone: window_start, window_end and window_time have its type.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (
  window_start TIMESTAMP(3),
  window_end TIMESTAMP(3),
  window_time TIMESTAMP(3),
  product STRING,
  n BIGINT,
  quantity BIGINT
)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, window_end, window_time, product, COUNT(*), CAST(SUM(quantity) AS BIGINT)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '30' SECOND))
GROUP BY window_start, window_end, window_time, product;
