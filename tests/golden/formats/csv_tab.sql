-- Fields separated by tabs.
CREATE TABLE texts (n INT, s STRING, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/tabs.tsv', 'format' = 'csv', 'csv.field-delimiter' = '\t');

CREATE TABLE `out` (n INT, s STRING, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, s, d FROM texts;
