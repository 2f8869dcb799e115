-- Two keys; the result keeps one of them only.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT region, COUNT(*), SUM(amount) FROM payments GROUP BY region, account;
