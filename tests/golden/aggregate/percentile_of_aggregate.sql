-- PERCENTILE over rows that are taken back, and of an ARRAY of percentages.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (median DOUBLE, low DOUBLE, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT PERCENTILE(total, 0.5), PERCENTILE(total, ARRAY[0.25, 0.75])[1], COUNT(*)
FROM (SELECT account, SUM(amount) AS total FROM payments GROUP BY account);
