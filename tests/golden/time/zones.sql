-- The session's time zone in casts between TIMESTAMP_LTZ and TIMESTAMP, and in FROM_UNIXTIME.
SET 'table.local-time-zone' = 'Europe/Berlin';

CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, local_time TIMESTAMP(3), hour_ BIGINT, text STRING, unix STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, CAST(TO_TIMESTAMP_LTZ(ms, 3) AS TIMESTAMP(3)), EXTRACT(HOUR FROM TO_TIMESTAMP_LTZ(ms, 3)), DATE_FORMAT(TO_TIMESTAMP_LTZ(ms, 3), 'yyyy-MM-dd HH:mm'), FROM_UNIXTIME(ms / 1000)
FROM moments WHERE n <> 6;
