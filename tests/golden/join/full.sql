-- A full join: what has no partner comes from both sides.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, customer STRING, name STRING, credit BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT o.id, o.customer, c.name, c.credit FROM orders AS o FULL OUTER JOIN customers AS c ON o.customer = c.name;
