-- IS NULL, IS NOT NULL, IS DISTINCT FROM, IS NOT DISTINCT FROM.
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (what STRING, n INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT 'a is null', n FROM numbers WHERE a IS NULL
UNION ALL
SELECT 'b is not null', n FROM numbers WHERE b IS NOT NULL
UNION ALL
SELECT 'a is distinct from b', n FROM numbers WHERE a IS DISTINCT FROM b
UNION ALL
SELECT 'a is not distinct from b', n FROM numbers WHERE a IS NOT DISTINCT FROM b
UNION ALL
SELECT 'a is distinct from 7', n FROM numbers WHERE a IS DISTINCT FROM 7;
