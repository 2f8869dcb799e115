-- A key of two columns, one of which may be NULL.
-- The expectation was computed by DuckDB.
CREATE TABLE numbers (id BIGINT, a BIGINT, b BIGINT, x DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (a BIGINT, b BIGINT, l BIGINT, r BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT l.a, l.b, l.id, r.id FROM numbers AS l JOIN numbers AS r ON l.a = r.a AND l.b = r.b;
