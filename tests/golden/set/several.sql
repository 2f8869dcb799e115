-- INTERSECT binds tighter than EXCEPT and UNION.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE products (product STRING, kind STRING, stock INT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/products.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (word STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT customer FROM orders UNION ALL SELECT product FROM products EXCEPT SELECT city FROM customers INTERSECT SELECT
name FROM customers;
