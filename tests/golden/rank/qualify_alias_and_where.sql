-- QUALIFY by the name of the rank, behind WHERE and GROUP BY. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE named (region STRING, id BIGINT, rn BIGINT)
WITH ('connector' = 'print');

CREATE TABLE grouped (region STRING, account STRING, total BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO named
SELECT region, id, ROW_NUMBER() OVER (PARTITION BY region ORDER BY amount DESC, id) AS rn FROM payments WHERE amount < 200
QUALIFY rn <= 3;
INSERT INTO grouped
SELECT region, account, SUM(amount) AS total FROM payments GROUP BY region, account
QUALIFY ROW_NUMBER() OVER (PARTITION BY region ORDER BY SUM(amount) DESC, account) <= 2;
END;
