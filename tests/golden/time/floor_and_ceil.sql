-- FLOOR and CEIL of a timestamp to a unit.
CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, a TIMESTAMP(3), b TIMESTAMP(3), c TIMESTAMP(3), d TIMESTAMP(3), e TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, FLOOR(ts TO MINUTE), FLOOR(ts TO HOUR), FLOOR(ts TO DAY), FLOOR(ts TO MONTH), CEIL(ts TO HOUR) FROM moments WHERE n <> 3;
