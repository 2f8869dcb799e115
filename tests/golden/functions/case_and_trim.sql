-- UPPER, LOWER, TRIM in its forms, LTRIM, RTRIM.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, a STRING, b STRING, c STRING, d STRING, e STRING, f STRING, g STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, UPPER(s), LOWER(s), LTRIM(s) || '.', TRIM(s) || '.', TRIM(LEADING ' ' FROM s) || '.', RTRIM(s) || '.', TRIM(BOTH 'e' FROM t)
FROM texts WHERE n <> 5;
