-- Quoted fields with delimiters, doubled quotes and blanks, read and written again; unicode.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, s, t FROM texts WHERE n <> 5;
