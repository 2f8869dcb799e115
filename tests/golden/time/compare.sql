-- Timestamps and dates compared with literals and with each other.
CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (what STRING, n INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT 'after', n FROM moments WHERE ts > TIMESTAMP '2024-01-31 08:05:09'
UNION ALL
SELECT 'not before', n FROM moments WHERE ts >= TIMESTAMP '2024-01-31 08:05:09'
UNION ALL
SELECT 'between', n FROM moments WHERE ts BETWEEN TIMESTAMP '2000-01-01 00:00:00' AND TIMESTAMP '2024-02-29 23:59:59.999'
UNION ALL
SELECT 'day', n FROM moments WHERE d = DATE '2024-02-29'
UNION ALL
SELECT 'midnight', n FROM moments WHERE ts = CAST(d AS TIMESTAMP(3))
UNION ALL
SELECT 'soon after', n FROM moments WHERE ts - INTERVAL '1' DAY < TIMESTAMP '1970-01-01 00:00:00';
