-- IS NOT DISTINCT FROM beside an ordinary key, in a left join.
-- The expectation was computed by DuckDB.
CREATE TABLE numbers (id BIGINT, a BIGINT, b BIGINT, x DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (id BIGINT, other BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT l.id, r.id FROM numbers AS l LEFT JOIN numbers AS r ON l.b = r.b AND l.id < r.id AND l.a IS NOT DISTINCT FROM
r.a;
