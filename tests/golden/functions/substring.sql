-- SUBSTRING in both forms, with negative and too large positions; LEFT, RIGHT.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, a STRING, b STRING, c STRING, d STRING, e STRING, f STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, SUBSTRING(s FROM 2 FOR 3) || '.', SUBSTRING(s, 4) || '.', SUBSTRING(s, -3) || '.', SUBSTR(s, 100, 2) || '.', LEFT(s, 2) || '.', RIGHT(s, 2) || '.'
FROM texts;
