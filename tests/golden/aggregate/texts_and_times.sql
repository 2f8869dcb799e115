-- MIN and MAX of texts (by code point) and of timestamps.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (product STRING, first_customer STRING, last_customer STRING, first_ts TIMESTAMP(3), last_ts TIMESTAMP(3))
WITH ('connector' = 'print');

INSERT INTO `out` SELECT product, MIN(customer), MAX(customer), MIN(ts), MAX(ts) FROM orders GROUP BY product;
