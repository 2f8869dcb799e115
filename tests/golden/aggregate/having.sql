-- HAVING: groups that come and go while rows arrive.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, account STRING, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT region, account, SUM(amount) FROM payments GROUP BY region, account HAVING SUM(amount) > 1000 AND COUNT(*) < 15;
