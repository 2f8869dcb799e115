-- A left join without an equality.
-- The expectation was computed by DuckDB.
CREATE TABLE customers (name STRING, city STRING, credit BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/customers.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE products (product STRING, kind STRING, stock INT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/products.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (name STRING, credit BIGINT, product STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT c.name, c.credit, p.product FROM customers AS c LEFT JOIN products AS p ON c.credit < p.stock * 20;
