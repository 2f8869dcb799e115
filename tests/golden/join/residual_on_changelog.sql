-- A left join of updating inputs with a further condition that turns on and off.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, account STRING, n BIGINT, most BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT r.region, a.account, r.n, a.most FROM (SELECT region, COUNT(*) AS n, MIN(amount) AS least FROM payments GROUP
BY region) AS r LEFT JOIN (SELECT account, COUNT(*) AS n, MAX(amount) AS most FROM payments GROUP BY account) AS a ON
MOD(r.n, 2) = MOD(a.n, 2) AND r.n > a.n;
