-- An aggregate over INTERSECT.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT COUNT(*) FROM (SELECT qty FROM orders INTERSECT SELECT MOD(amount, 7) FROM payments) AS t;
