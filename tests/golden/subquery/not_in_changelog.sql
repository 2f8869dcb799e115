-- NOT IN a subquery whose rows come and go.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, account STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT id, account FROM payments WHERE amount > 140 AND account NOT IN (SELECT account FROM payments GROUP BY account
HAVING MOD(SUM(amount), 3) = 0);
