-- COUNT(DISTINCT) over a changelog: values appear and vanish.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, different BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, COUNT(DISTINCT n) FROM (SELECT region, account, COUNT(*) AS n FROM payments GROUP BY region, account) GROUP BY region;
