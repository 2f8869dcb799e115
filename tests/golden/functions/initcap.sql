-- INITCAP: every word begins with a capital letter, the rest is small.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, a STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, INITCAP(s) FROM texts WHERE n IN (1, 2, 3, 4, 10, 11, 12);
