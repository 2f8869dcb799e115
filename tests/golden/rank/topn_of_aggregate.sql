-- The accounts with the largest sums, of each region and of all: rows of the input are taken back. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW sums AS SELECT region, account, SUM(amount) AS total FROM payments GROUP BY region, account;

CREATE TABLE accounts (region STRING, account STRING, total BIGINT)
WITH ('connector' = 'print');

CREATE TABLE ranks (rn BIGINT, region STRING, account STRING, total BIGINT)
WITH ('connector' = 'print');

CREATE TABLE smallest (region STRING, account STRING)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO accounts
SELECT region, account, total
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY region ORDER BY total DESC, account) AS rn FROM sums) WHERE rn <= 2;
INSERT INTO ranks
SELECT rn, region, account, total
FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY total DESC, account, region) AS rn FROM sums) WHERE rn <= 5;
INSERT INTO smallest
SELECT region, account FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY region ORDER BY total, account) AS rn FROM sums) WHERE rn = 1;
END;
