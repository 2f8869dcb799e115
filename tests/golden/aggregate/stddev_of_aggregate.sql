-- STDDEV over rows that are taken back.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (sp DOUBLE, vs DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT STDDEV_POP(total), VARIANCE(total) FROM (SELECT account, SUM(amount) AS total FROM payments GROUP BY account);
