-- A running value in WHERE.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, amount BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT id, amount FROM payments WHERE amount > (SELECT MAX(amount) - 10 FROM payments);
