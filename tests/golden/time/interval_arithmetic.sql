-- Timestamps plus and minus intervals of several units; months keep to the end of the month.
CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, a TIMESTAMP(3), b TIMESTAMP(3), c TIMESTAMP(3), d TIMESTAMP(3), e DATE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, ts + INTERVAL '1' DAY, ts - INTERVAL '90' MINUTE, ts + INTERVAL '1' MONTH, ts + INTERVAL '1 02:03:04' DAY TO SECOND, d + INTERVAL '2' DAY FROM moments;
