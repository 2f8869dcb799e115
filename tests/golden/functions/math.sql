-- ABS, SIGN, ROUND, FLOOR, CEIL, POWER, SQRT on exact values.
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, a BIGINT, b DOUBLE, c DOUBLE, d DOUBLE, e DOUBLE, f DOUBLE, g DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, ABS(b), ABS(d), FLOOR(d), CEIL(d), ROUND(d, 1), POWER(CAST(b AS DOUBLE), 2), SQRT(CAST(b * b AS DOUBLE)) FROM numbers WHERE n <> 9;
