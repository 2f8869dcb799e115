-- UNIX_TIMESTAMP of a text, FROM_UNIXTIME, TO_TIMESTAMP_LTZ of seconds and milliseconds, in UTC.
SET 'table.local-time-zone' = 'UTC';

CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, a BIGINT, b STRING, c STRING, d TIMESTAMP_LTZ(3), e TIMESTAMP_LTZ(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, UNIX_TIMESTAMP(DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss')), FROM_UNIXTIME(ms / 1000), FROM_UNIXTIME(ms / 1000, 'yyyy-MM-dd'),
  TO_TIMESTAMP_LTZ(ms / 1000, 0), TO_TIMESTAMP_LTZ(ms, 3)
FROM moments WHERE n <> 6;
