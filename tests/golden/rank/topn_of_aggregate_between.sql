-- Ranks from the middle of an updating input. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW counts AS SELECT account, COUNT(*) AS n FROM payments GROUP BY account;

CREATE TABLE middle (rn BIGINT, account STRING, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE unseen (account STRING, n BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO middle
SELECT rn, account, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC, account) AS rn FROM counts) WHERE rn BETWEEN 2 AND 4;
INSERT INTO unseen
SELECT account, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC, account) AS rn FROM counts) WHERE rn BETWEEN 3 AND 4;
END;
