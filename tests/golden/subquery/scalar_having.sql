-- A running value in HAVING.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (account STRING, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT account, SUM(amount) FROM payments GROUP BY account HAVING SUM(amount) * 5 > (SELECT SUM(amount) FROM payments);
