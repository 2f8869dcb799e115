-- ARRAY_AGG: elements in the order in which rows come.
-- batch: no
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, n BIGINT, a BIGINT, b BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, CARDINALITY(l), l[1], l[2] FROM (SELECT region, ARRAY_AGG(amount) AS l FROM payments GROUP BY region);
