-- Keys of different types: a BIGINT against an INT.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE products (product STRING, kind STRING, stock INT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/products.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (id BIGINT, product STRING, stock INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT o.id, p.product, p.stock FROM orders AS o JOIN products AS p ON o.qty = p.stock;
