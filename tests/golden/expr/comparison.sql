-- Comparisons as values: TRUE, FALSE or NULL.
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, eq BOOLEAN, ne BOOLEAN, lt BOOLEAN, ge BOOLEAN, both_ BOOLEAN, either BOOLEAN, negated BOOLEAN)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, a = b, a <> b, a < d, a >= 7, a > 0 AND b > 2, a > 0 OR b > 2, NOT (a > 0) FROM numbers;
