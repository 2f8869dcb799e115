-- NULLs in the aggregated column: COUNT(x) leaves them out, SUM of none is NULL.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, n BIGINT, n_quantity BIGINT, quantity INT, high DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, COUNT(*) OVER w, COUNT(quantity) OVER w, SUM(quantity) OVER w, MAX(amount) OVER w FROM orders
WINDOW w AS (PARTITION BY product ORDER BY ts RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW);
