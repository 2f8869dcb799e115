-- MIN and MAX over a changelog: the extreme moves both ways as its input is updated.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, lowest BIGINT, highest BIGINT, mean BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, MIN(total), MAX(total), AVG(total)
FROM (SELECT region, account, SUM(amount) AS total FROM payments GROUP BY region, account)
GROUP BY region;
