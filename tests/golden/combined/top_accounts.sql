-- Balances, then statistics over the balances, by way of a CTE over an updating view.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW balances AS SELECT region, account, SUM(amount) AS balance, COUNT(*) AS n FROM payments GROUP BY region, account;

CREATE TABLE `out` (region STRING, accounts BIGINT, in_debt BIGINT, richest BIGINT, moves BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
WITH active AS (SELECT region, account, balance, n FROM balances WHERE n >= 5)
SELECT region, COUNT(*), COUNT(*) FILTER (WHERE balance < 500), MAX(balance), SUM(n) FROM active GROUP BY region HAVING COUNT(*) > 1;
