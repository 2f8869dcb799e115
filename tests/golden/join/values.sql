-- A join with rows written in the query.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, word STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT o.id, v.word FROM orders AS o JOIN (VALUES ('tea', 'Tee'), ('cake', 'Kuchen'), ('none', 'nichts')) AS v
(product, word) ON o.product = v.product;
