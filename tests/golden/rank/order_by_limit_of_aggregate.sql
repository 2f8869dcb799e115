-- ORDER BY … LIMIT over groups that change; and LIMIT alone, which is long enough for all. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE top_ (account STRING, total BIGINT)
WITH ('connector' = 'print');

CREATE TABLE fetched (region STRING, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE all_ (account STRING, n BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO top_ SELECT account, SUM(amount) AS total FROM payments GROUP BY account ORDER BY total DESC, account LIMIT 3;
INSERT INTO fetched SELECT region, COUNT(*) AS n FROM payments GROUP BY region ORDER BY n, region LIMIT 2;
INSERT INTO all_ SELECT account, COUNT(*) FROM payments GROUP BY account LIMIT 100;
END;
