-- A right join: customers who never ordered, and the one without a name.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, name STRING, city STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT o.id, c.name, c.city FROM orders AS o RIGHT OUTER JOIN customers AS c ON o.customer = c.name;
