-- The same subexpression several times, and functions in functions.
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, a STRING, b BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, UPPER(LPAD(CAST(COALESCE(a, b, 0) % 100 AS STRING), 6, 'x')), COALESCE(a, b, 0) % 100 + COALESCE(a, b, 0) % 100 * 2 FROM numbers;
