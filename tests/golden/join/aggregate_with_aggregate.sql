-- Running totals joined with running totals.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, n BIGINT, big BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT a.region, a.n, b.n FROM (SELECT region, COUNT(*) AS n FROM payments GROUP BY region) AS a JOIN (SELECT region,
COUNT(*) AS n FROM payments WHERE amount > 100 GROUP BY region) AS b ON a.region = b.region;
