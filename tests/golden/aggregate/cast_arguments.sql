-- Aggregates that only casts of their arguments tell apart, and an AVG of whole numbers beside what it is made of.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE sums (total BIGINT, total_double DOUBLE, mean BIGINT, mean_double DOUBLE)
WITH ('connector' = 'print');

CREATE TABLE counts (product STRING, fitting BIGINT, mean BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET
BEGIN
INSERT INTO sums SELECT SUM(qty), SUM(CAST(qty AS DOUBLE)), AVG(qty), AVG(CAST(qty AS DOUBLE)) FROM orders;
INSERT INTO counts
SELECT product, COUNT(TRY_CAST(CAST(qty * 100 AS STRING) AS TINYINT)), AVG(qty * 100) FROM orders GROUP BY product;
END;
