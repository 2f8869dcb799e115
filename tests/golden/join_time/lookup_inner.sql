-- A lookup join: conditions on the left side, on what is found, and a view in the place of the table.
-- flink: no
-- The expectation was worked out by hand.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING, pt AS PROCTIME())
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE products (name STRING, kind STRING, level BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/products.csv', 'format' = 'csv');

CREATE VIEW high AS SELECT name AS product, kind, level FROM products WHERE level >= 2;

CREATE TABLE `out` (id BIGINT, kind STRING, level BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT o.id, h.kind, h.level FROM orders AS o JOIN high FOR SYSTEM_TIME AS OF o.pt AS h ON h.product = o.product AND o.price > 4;
