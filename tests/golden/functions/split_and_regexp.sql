-- SPLIT_INDEX, REGEXP_EXTRACT, REGEXP_REPLACE, REGEXP.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, a STRING, b STRING, c STRING, d BOOLEAN)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, SPLIT_INDEX(s, ' ', 1), REGEXP_EXTRACT(s, '([a-z]+)=([a-z0-9]+);', 2), REGEXP_REPLACE(s, '[aeiou]', '_') || '.', REGEXP(s, '^[A-Z]')
FROM texts WHERE n NOT IN (2, 5);
