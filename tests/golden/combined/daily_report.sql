-- Calendar work as in a report: truncated times as keys of a running aggregate.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (day_ DATE, minute_ TIMESTAMP(3), product STRING, orders_ BIGINT, revenue DOUBLE, buyers BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT CAST(ts AS DATE), FLOOR(ts TO MINUTE), product, COUNT(*), SUM(amount * quantity), COUNT(DISTINCT customer)
FROM orders GROUP BY CAST(ts AS DATE), FLOOR(ts TO MINUTE), product;
