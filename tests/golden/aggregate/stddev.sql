-- STDDEV and VAR of groups.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, vp DOUBLE, vs DOUBLE, sp DOUBLE, ss DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, VAR_POP(amount), VAR_SAMP(amount), STDDEV_POP(amount), STDDEV_SAMP(amount) FROM payments GROUP BY region;
