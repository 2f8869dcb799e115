-- A left join of a left join: NULLs of the first are keys of the second.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, city STRING, other STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT o.id, c.city, d.name FROM orders AS o LEFT JOIN customers AS c ON o.customer = c.name LEFT JOIN customers AS d
ON c.city = d.city AND d.credit < 50;
