-- FIRST_VALUE and LAST_VALUE of a group, in the order in which rows come.
-- batch: no
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, f BIGINT, l BIGINT, account STRING, large BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, FIRST_VALUE(id), LAST_VALUE(id), FIRST_VALUE(account), FIRST_VALUE(CASE WHEN amount > 100 THEN amount END) FROM payments GROUP BY region;
