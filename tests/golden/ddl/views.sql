-- Views, temporary and not, on each other; one with new column names.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE VIEW priced AS SELECT id, customer, amount * quantity AS cost FROM orders WHERE amount IS NOT NULL;

CREATE TEMPORARY VIEW named (order_id, buyer, price) AS SELECT id, COALESCE(customer, 'nobody'), cost FROM priced;

CREATE TABLE `out` (order_id BIGINT, buyer STRING, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT order_id, buyer, price FROM named WHERE price > 9 OR buyer = 'nobody';
