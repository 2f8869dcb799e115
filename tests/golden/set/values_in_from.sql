-- VALUES as a table in FROM, with NULLs and column names.
CREATE TABLE `out` (name STRING, n INT, half DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT name, n, CAST(n AS DOUBLE) / 2
FROM (VALUES ('one', 1), ('two', 2), (CAST(NULL AS STRING), 3), ('four', CAST(NULL AS INT))) AS t (name, n)
WHERE n IS NULL OR n > 1;
