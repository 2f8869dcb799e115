-- PERCENTILE, also with a frequency.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, median DOUBLE, ninety DOUBLE, often DOUBLE, low DOUBLE, high DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, PERCENTILE(amount, 0.5), PERCENTILE(amount, 0.9), PERCENTILE(amount, 0.5, MOD(id, 3)), PERCENTILE(amount, 0), PERCENTILE(amount, 1)
FROM payments GROUP BY region;
