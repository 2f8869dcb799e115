-- The empty text and NULL are different things in a CSV sink.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, s STRING, is_null BOOLEAN, length INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, s, s IS NULL, CHAR_LENGTH(s) FROM texts WHERE n IN (5, 6);
