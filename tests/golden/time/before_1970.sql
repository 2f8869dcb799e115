-- A moment before 1970: FLOOR goes down, not toward 1970; text and differences.
CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (a TIMESTAMP(3), b TIMESTAMP(3), c TIMESTAMP(3), d TIMESTAMP(3), e STRING, f INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT FLOOR(ts TO MINUTE), FLOOR(ts TO HOUR), FLOOR(ts TO DAY), CEIL(ts TO HOUR), DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss'),
  TIMESTAMPDIFF(MINUTE, ts, TIMESTAMP '1970-01-01 00:00:59')
FROM moments WHERE ts < TIMESTAMP '1970-01-01 00:00:00';
