-- GREATEST and LEAST: NULL if any argument is.
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, g BIGINT, l BIGINT, of_texts STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, GREATEST(a, b, 3), LEAST(a, b, 3), GREATEST('b', 'abc', CAST(n AS STRING)) FROM numbers;
