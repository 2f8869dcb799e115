-- SUM of INT written into BIGINT after a cast; expressions over aggregates.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (product STRING, pieces BIGINT, mean_ DOUBLE, spread DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT product, CAST(SUM(quantity) AS BIGINT), SUM(amount * quantity) / COUNT(*), MAX(amount) - MIN(amount) FROM orders WHERE id <= 10 GROUP BY product;
