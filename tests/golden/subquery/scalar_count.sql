-- COUNT of nothing is 0 for a row without a partner.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (name STRING, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT c.name, (SELECT COUNT(*) FROM orders AS o WHERE o.customer = c.name) FROM customers AS c;
