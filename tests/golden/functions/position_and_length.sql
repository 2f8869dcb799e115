-- POSITION, LOCATE, INSTR, CHAR_LENGTH count characters, not bytes.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, a INT, b INT, c INT, d INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, POSITION('e' IN s), LOCATE('o', s, 6), INSTR(s, t), CHAR_LENGTH(s) FROM texts;
