-- AVG of an integer is an integer, truncated toward zero; AVG of a double is a double.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (product STRING, mean_quantity INT, mean_amount DOUBLE, mean_negative INT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT product, AVG(quantity), AVG(amount), AVG(-quantity) FROM orders WHERE id <> 12 GROUP BY product;
