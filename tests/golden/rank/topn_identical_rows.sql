-- Rows that are the same in all that is asked for count one by one. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE best (region STRING, account STRING)
WITH ('connector' = 'print');

INSERT INTO best
SELECT region, account
FROM (SELECT region, account, ROW_NUMBER() OVER (PARTITION BY region ORDER BY account) AS rn FROM payments)
WHERE rn <= 20;
