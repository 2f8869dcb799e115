-- NOT EXISTS with a further condition.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, product STRING, price DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT o.id, o.product, o.price FROM orders AS o WHERE NOT EXISTS (SELECT 1 FROM orders AS p WHERE p.product =
o.product AND p.id > o.id);
