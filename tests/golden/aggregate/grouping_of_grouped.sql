-- ROLLUP beside a key, over rows that are grouped by that key: the other columns depend on it.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, top STRING, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, top, MAX(n)
FROM (SELECT region, MAX(account) AS top, COUNT(*) AS n FROM payments GROUP BY region)
GROUP BY region, ROLLUP (top);
