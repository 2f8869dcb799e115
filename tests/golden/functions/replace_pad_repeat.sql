-- REPLACE, also to count a character, LPAD, RPAD, REPEAT, REVERSE, OVERLAY.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, a STRING, b STRING, c STRING, d STRING, e STRING, f STRING, g INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, REPLACE(s, 'a', 'AA') || '.', LPAD(t, 3, '*'), RPAD(t, 3, '*'), REPEAT(t, 2), REVERSE(s) || '.', OVERLAY(s PLACING '##' FROM 2 FOR 1) || '.',
  CHAR_LENGTH(s) - CHAR_LENGTH(REPLACE(s, 'e', ''))
FROM texts WHERE n <> 5;
