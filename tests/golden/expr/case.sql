-- CASE in both forms, without ELSE, with NULL as the tested value.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, searched STRING, simple STRING, no_else INT, nested STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id,
  CASE WHEN amount > 10 THEN 'dear' WHEN amount > 4 THEN 'fair' WHEN amount IS NULL THEN 'unknown' ELSE 'cheap' END,
  CASE product WHEN 'tea' THEN 'leaf' WHEN 'coffee' THEN 'bean' ELSE 'other' END,
  CASE customer WHEN 'alice' THEN 1 WHEN 'bob' THEN 2 END,
  CASE WHEN quantity > 2 THEN CASE WHEN amount > 4 THEN 'many and not cheap' ELSE 'many' END ELSE 'few' END
FROM orders;
