-- EXCEPT of running aggregates.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT COUNT(*) FROM payments GROUP BY account EXCEPT SELECT COUNT(*) FROM payments GROUP BY region;
