-- A key beside the same as text: DataFusion calls both by one name, and they are two.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (word STRING, qty BIGINT, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE turned (qty BIGINT, fraction DOUBLE, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT CAST(qty AS STRING), qty, COUNT(*) FROM orders GROUP BY CAST(qty AS STRING), qty;
INSERT INTO turned SELECT qty, CAST(qty AS DOUBLE), COUNT(*) FROM orders GROUP BY qty, CAST(qty AS DOUBLE);
