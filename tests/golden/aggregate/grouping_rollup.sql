-- ROLLUP: sums by region and account, by region, and of all. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE sums (region STRING, account STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO sums SELECT region, account, COUNT(*), SUM(amount) FROM payments GROUP BY ROLLUP (region, account);
