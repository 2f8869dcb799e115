-- EXISTS and NOT EXISTS beneath OR.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE products (product STRING, kind STRING, stock INT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/products.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (id BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT o.id FROM orders AS o WHERE EXISTS (SELECT 1 FROM products AS p WHERE p.product = o.product AND p.stock = 3) OR
NOT EXISTS (SELECT 1 FROM customers AS c WHERE c.name = o.customer);
