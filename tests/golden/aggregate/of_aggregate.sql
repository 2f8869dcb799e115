-- An aggregate of an aggregate: the outer one takes retractions.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (accounts BIGINT, n BIGINT, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT COUNT(*), SUM(n), SUM(total) FROM (SELECT account, COUNT(*) AS n, SUM(amount) AS total FROM payments GROUP BY account);
