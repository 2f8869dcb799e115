-- Rows above the average of their group.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, account STRING, amount BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT p.id, p.account, p.amount FROM payments AS p WHERE p.amount > (SELECT MAX(q.amount) - 5 FROM payments AS q
WHERE q.account = p.account);
