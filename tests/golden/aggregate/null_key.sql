-- NULL is a key of its own; a group whose values are all NULL has SUM NULL and COUNT 0.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (customer STRING, n BIGINT, n_quantity BIGINT, quantity INT, best DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT customer, COUNT(*), COUNT(quantity), SUM(quantity), MAX(amount) FROM orders WHERE id <> 8 GROUP BY customer;
