-- Tables behind commas; WHERE says how they belong together, in another order.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE products (product STRING, kind STRING, stock INT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/products.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (id BIGINT, name STRING, stock INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT o.id, c.name, p.stock FROM customers AS c, products AS p, orders AS o WHERE p.product = o.product AND
o.customer = c.name AND c.credit > 20;
