-- An aggregate over a left join: rows that are taken back are taken out of the sums.
-- The expectation was computed by DuckDB.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (name STRING, n BIGINT, matched BIGINT, total DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT c.name, COUNT(*), COUNT(o.id), SUM(o.price) FROM customers AS c LEFT JOIN orders AS o ON o.customer = c.name
GROUP BY c.name;
