-- CUBE over three keys, one of them computed. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE sums (region STRING, account STRING, big BOOLEAN, n BIGINT, low BIGINT)
WITH ('connector' = 'print');

INSERT INTO sums SELECT region, account, amount > 100, COUNT(*), MIN(amount) FROM payments GROUP BY CUBE (region, account, amount > 100);
