-- COALESCE, NULLIF, IF, IFNULL.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, a STRING, b DOUBLE, c STRING, d STRING, e INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, COALESCE(customer, 'nobody'), COALESCE(amount, CAST(quantity AS DOUBLE), CAST(-1 AS DOUBLE)), NULLIF(product, 'tea'),
  IF(quantity > 1, 'several', 'one or none'), IFNULL(quantity, 0)
FROM orders;
