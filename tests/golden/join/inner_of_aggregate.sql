-- An inner join of running totals with a table.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (name STRING, n BIGINT, total BIGINT, city STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT t.customer, t.n, t.total, c.city FROM (SELECT customer, COUNT(*) AS n, SUM(qty) AS total FROM orders GROUP BY
customer) AS t JOIN customers AS c ON t.customer = c.name;
