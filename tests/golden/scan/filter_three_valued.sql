-- NULL in conditions: a row stays only where the condition is true, not where it is unknown.
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, what STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, 'a = b or d < 1' FROM numbers WHERE a = b OR d < 1
UNION ALL
SELECT n, 'not (a > 0)' FROM numbers WHERE NOT (a > 0)
UNION ALL
SELECT n, 'a > 0 or a <= 0' FROM numbers WHERE a > 0 OR a <= 0
UNION ALL
SELECT n, '(a > 0 and b > 2) is unknown' FROM numbers WHERE (a > 0 AND b > 2) IS UNKNOWN
UNION ALL
SELECT n, '(a > 0) is not true' FROM numbers WHERE (a > 0) IS NOT TRUE
UNION ALL
SELECT n, '(a > 0) is false' FROM numbers WHERE (a > 0) IS FALSE;
