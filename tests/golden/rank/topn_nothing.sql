-- Ranks that no row has: the result is empty. By hand.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW ranked AS
SELECT *, ROW_NUMBER() OVER (PARTITION BY region ORDER BY amount DESC, id) AS rn FROM payments;

CREATE TABLE zero (id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE gap (id BIGINT, rn BIGINT)
WITH ('connector' = 'print');

CREATE TABLE beyond (id BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO zero SELECT id FROM ranked WHERE rn < 1;
INSERT INTO gap SELECT id, rn FROM ranked WHERE rn > 3 AND rn < 2;
INSERT INTO beyond SELECT id FROM ranked WHERE rn BETWEEN 1000 AND 1001;
END;
