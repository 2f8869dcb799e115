-- Elements of an array that changes are taken back and come again.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (account STRING, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT x, COUNT(*) FROM (SELECT region, ARRAY_AGG(account) AS l FROM payments GROUP BY region) CROSS JOIN UNNEST(l) AS t (x) GROUP BY x;
