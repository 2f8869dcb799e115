-- A condition on one of two columns of the same name, beside a condition on the other side alone.
CREATE TABLE numbers (id BIGINT, a BIGINT, b BIGINT, x DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (id BIGINT, other BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT l.id, r.id FROM numbers AS l RIGHT JOIN (SELECT id, b FROM numbers WHERE x > 0) AS r ON l.id = r.b
WHERE l.id IS NULL;
