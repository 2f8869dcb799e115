-- GROUPING and GROUPING_ID tell the sets apart, also in HAVING and without sets. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE sums (region STRING, account STRING, g BIGINT, h BIGINT, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE having_ (region STRING, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE plain (region STRING, g BIGINT, n BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO sums SELECT region, account, GROUPING(region, account), GROUPING(account), COUNT(*) FROM payments GROUP BY CUBE (region, account);
INSERT INTO having_ SELECT region, COUNT(*) FROM payments GROUP BY ROLLUP (region, account) HAVING GROUPING_ID(region, account) = 1;
INSERT INTO plain SELECT region, GROUPING(region), COUNT(*) FROM payments GROUP BY region;
END;
