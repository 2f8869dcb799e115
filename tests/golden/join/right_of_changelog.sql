-- A right join whose left side is updated.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (n BIGINT, name STRING, city STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT t.n, c.name, c.city FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer) AS t RIGHT JOIN
customers AS c ON t.customer = c.name AND t.n > 1;
