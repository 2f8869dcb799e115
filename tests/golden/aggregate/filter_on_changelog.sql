-- A filter and a projection on an updating query.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (account STRING, thousands BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT account, total / 1000 FROM (SELECT account, SUM(amount) AS total FROM payments GROUP BY account) WHERE MOD(total, 2) = 0;
