-- One view on both sides, updated at once.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, other STRING, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
WITH t AS (SELECT region, COUNT(*) AS n FROM payments GROUP BY region) SELECT l.region, r.region, l.n + r.n FROM t AS
l JOIN t AS r ON l.n < r.n;
