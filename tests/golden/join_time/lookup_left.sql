-- A LEFT lookup join: several matches, none, keys that are NULL, conditions on both sides, a computed column of the table.
-- flink: no
-- The expectation was worked out by hand.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING, pt AS PROCTIME())
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT, label AS COALESCE(name, '?') || '!')
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, credit BIGINT, label STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT o.id, c.credit, c.label
FROM orders AS o LEFT JOIN customers FOR SYSTEM_TIME AS OF o.pt AS c ON c.name = o.customer AND o.qty > 0 AND c.credit > 20;
