-- Every way to bound a rank: =, <, <=, BETWEEN, IN, and the number in front. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW ranked AS
SELECT *, ROW_NUMBER() OVER (PARTITION BY region ORDER BY amount DESC, id) AS rn FROM payments;

CREATE TABLE one (region STRING, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE less (region STRING, id BIGINT, rn BIGINT)
WITH ('connector' = 'print');

CREATE TABLE turned (region STRING, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE second_one (region STRING, rn BIGINT, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE between_ (region STRING, id BIGINT, rn BIGINT)
WITH ('connector' = 'print');

CREATE TABLE within (region STRING, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE listed (region STRING, id BIGINT, rn BIGINT)
WITH ('connector' = 'print');

CREATE TABLE either (region STRING, id BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO one
SELECT region, id FROM ranked WHERE rn = 1;
INSERT INTO less
SELECT region, id, rn FROM ranked WHERE rn < 4;
INSERT INTO turned
SELECT region, id FROM ranked WHERE 5 >= rn;
INSERT INTO second_one
SELECT region, rn, id FROM ranked WHERE 2 = rn;
INSERT INTO between_
SELECT region, id, rn FROM ranked WHERE rn BETWEEN 2 AND 5;
INSERT INTO within
SELECT region, id FROM ranked WHERE rn > 2 AND rn <= 4;
INSERT INTO listed
SELECT region, id, rn FROM ranked WHERE rn IN (1, 3);
INSERT INTO either
SELECT region, id FROM ranked WHERE rn = 2 OR rn = 6;
END;
