-- A left join whose right side is updated all the time.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (account STRING, id BIGINT, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT p.account, p.id, t.total FROM (SELECT * FROM payments WHERE amount > 120) AS p LEFT JOIN (SELECT account,
SUM(amount) AS total FROM payments GROUP BY account HAVING SUM(amount) > 2000) AS t ON p.account = t.account;
