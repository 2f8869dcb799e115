-- UNION ALL of two filters over one table: doubles stay.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, amount FROM payments WHERE amount > 180
UNION ALL
SELECT id, amount FROM payments WHERE region = 'north' AND amount > 170;
