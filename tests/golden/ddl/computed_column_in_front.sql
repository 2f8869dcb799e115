-- A computed column declared in front of the columns it uses; SELECT * has it there.
CREATE TABLE numbers (
  total AS a + b,
  n INT,
  a BIGINT,
  b BIGINT,
  d DOUBLE
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (total BIGINT, n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT * FROM numbers WHERE n <= 7;
