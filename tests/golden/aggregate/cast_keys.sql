-- Keys that only the types of their casts tell apart, by themselves, in HAVING and in sets.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (whole INT, word STRING, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE of_text (word STRING, qty BIGINT, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE sets (word STRING, fraction DOUBLE, n BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET
BEGIN
INSERT INTO `out`
SELECT CAST(price AS INT), CAST(orders.price AS STRING), COUNT(*) FROM orders GROUP BY CAST(price AS INTEGER), CAST(price AS STRING);
INSERT INTO of_text
SELECT CAST(qty AS STRING), qty, COUNT(*) FROM orders GROUP BY CAST(qty AS STRING), qty HAVING CAST(qty AS STRING) > '2';
INSERT INTO sets
SELECT CAST(qty AS STRING), CAST(qty AS DOUBLE), COUNT(*) FROM orders WHERE qty > 0 AND qty < 3
GROUP BY ROLLUP (CAST(qty AS STRING), CAST(qty AS DOUBLE));
END;
