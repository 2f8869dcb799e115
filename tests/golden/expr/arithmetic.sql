-- + - * and unary minus on BIGINT and DOUBLE, with NULLs; mixed types become DOUBLE.
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, sum_ BIGINT, difference BIGINT, product BIGINT, negated BIGINT, mixed DOUBLE, halved DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, a + b, a - b, a * b, -b, b + d, d / 2 FROM numbers WHERE n <> 9;
