-- A lookup join of a lookup join, in a subquery; a key that is a constant; a condition on what was found last; a hint.
-- flink: no
-- The expectation was worked out by hand.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING, pt AS PROCTIME())
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE products (name STRING, kind STRING, level BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/products.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, city STRING, kind STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT /*+ LOOKUP('table' = 'p', 'output-mode' = 'allow_unordered', 'capacity' = '3') */ x.id, x.city, p.kind
FROM (
  SELECT o.id, o.product, c.city, o.pt FROM orders AS o
  JOIN customers FOR SYSTEM_TIME AS OF o.pt AS c ON c.name = o.customer AND c.city = 'Oslo'
) AS x
LEFT JOIN products FOR SYSTEM_TIME AS OF x.pt AS p ON p.name = x.product
WHERE p.level IS NULL OR p.level > 2;
