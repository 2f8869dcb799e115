-- || and CONCAT give NULL if an argument is NULL, CONCAT_WS leaves NULLs out.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, a STRING, b STRING, c STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, customer || ':' || product, CONCAT(customer, '/', product), CONCAT_WS('+', customer, product, CAST(quantity AS STRING)) FROM orders;
