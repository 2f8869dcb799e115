-- TIMESTAMPADD and TIMESTAMPDIFF; a difference counts whole units toward zero.
CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, a TIMESTAMP(3), b TIMESTAMP(3), c INT, d INT, e INT, f INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, TIMESTAMPADD(HOUR, 30, ts), TIMESTAMPADD(MONTH, 1, ts), TIMESTAMPDIFF(DAY, ts, TIMESTAMP '2024-03-01 00:00:00'),
  TIMESTAMPDIFF(HOUR, TIMESTAMP '2024-01-31 09:00:00', ts), TIMESTAMPDIFF(MONTH, ts, TIMESTAMP '2024-03-01 00:00:00'), TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', ts)
FROM moments;
