-- A query without FROM has one row.
CREATE TABLE `out` (a INT, b STRING, c BOOLEAN)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT 7 / 2, 'a' || 'b', CAST(NULL AS INT) IS NULL;
