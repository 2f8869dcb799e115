-- An empty file has no rows, and is no error.
CREATE TABLE nothing (a BIGINT, b STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/empty.csv', 'format' = 'csv');

CREATE TABLE `out` (a BIGINT, b STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT a, b FROM nothing;
