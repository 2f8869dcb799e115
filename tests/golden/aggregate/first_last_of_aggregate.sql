-- FIRST_VALUE, LAST_VALUE and LISTAGG over rows that are taken back.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (account STRING, f BIGINT, l BIGINT, totals STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT account, FIRST_VALUE(total), LAST_VALUE(n), LISTAGG(CAST(total AS STRING))
FROM (SELECT account, COUNT(*) AS n, SUM(amount) AS total FROM payments GROUP BY account)
GROUP BY account;
