-- EXISTS without a link to the outer row.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM customers WHERE city = 'Lima') AND NOT EXISTS (SELECT 1 FROM
customers WHERE city = 'Paris');
