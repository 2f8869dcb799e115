-- GROUPING SETS of their own choosing, one of them twice, and a key that all have. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE sums (region STRING, account STRING, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE common (region STRING, account STRING, odd BIGINT, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE crossed (region STRING, account STRING, n BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO sums SELECT region, account, COUNT(*) FROM payments GROUP BY GROUPING SETS ((account), (region, account), (), (account));
INSERT INTO common SELECT region, account, id % 2, COUNT(*) FROM payments GROUP BY region, GROUPING SETS ((account), (id % 2));
INSERT INTO crossed SELECT region, account, COUNT(*) FROM payments GROUP BY ROLLUP (region), ROLLUP (account);
END;
