-- Grouping sets over groups that change: rows are taken back from every set. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE sums (region STRING, n BIGINT, accounts BIGINT, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO sums
SELECT region, n, COUNT(*), SUM(total)
FROM (SELECT region, account, COUNT(*) AS n, SUM(amount) AS total FROM payments GROUP BY region, account)
GROUP BY CUBE (region, n);
