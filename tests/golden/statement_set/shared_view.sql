-- A view used by three inserts of one set.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW credits AS SELECT id, region, amount FROM payments WHERE amount > 0;

CREATE TABLE listed (id BIGINT, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/listed', 'format' = 'csv');

CREATE TABLE by_region (region STRING, total BIGINT)
WITH ('connector' = 'print');

CREATE TABLE overall (n BIGINT, total BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO listed SELECT id, amount FROM credits WHERE id <= 20;
INSERT INTO by_region SELECT region, SUM(amount) FROM credits GROUP BY region;
INSERT INTO overall SELECT COUNT(*), SUM(amount) FROM credits;
END;
