-- APPROX_COUNT_DISTINCT of few values is exact.
-- flink: no
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, accounts BIGINT, rest BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, APPROX_COUNT_DISTINCT(account), APPROX_COUNT_DISTINCT(MOD(amount, 4)) FROM payments GROUP BY region;
