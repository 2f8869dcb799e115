-- IN a running aggregate.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, account STRING, amount BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT id, account, amount FROM payments WHERE amount > 130 AND account IN (SELECT account FROM payments GROUP BY
account HAVING COUNT(*) > 30);
