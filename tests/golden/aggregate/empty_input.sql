-- GROUP BY over an empty file: no rows.
CREATE TABLE nothing (k STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/empty.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT k, COUNT(*), SUM(v) FROM nothing GROUP BY k;
