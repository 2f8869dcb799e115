-- NOT IN with a condition on the outer row.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE products (product STRING, kind STRING, stock INT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/products.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (id BIGINT, qty BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT o.id, o.qty FROM orders AS o WHERE o.qty NOT IN (SELECT p.stock FROM products AS p WHERE p.product = o.product);
