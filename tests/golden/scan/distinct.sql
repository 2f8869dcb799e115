-- SELECT DISTINCT over two columns, NULL being a value like others.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (customer STRING, product STRING)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT DISTINCT customer, product FROM orders;
