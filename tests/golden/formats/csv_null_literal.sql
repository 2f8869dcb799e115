-- A text that stands for NULL, in a source and in a sink.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, customer STRING, quantity INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv', 'csv.null-literal' = 'n/a');

INSERT INTO `out` SELECT id, customer, quantity FROM orders;
