-- DATE_FORMAT with several patterns.
CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, a STRING, b STRING, c STRING, d STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, DATE_FORMAT(ts, 'yyyy-MM-dd'), DATE_FORMAT(ts, 'HH:mm:ss.SSS'), DATE_FORMAT(ts, 'dd/MM/yy'), DATE_FORMAT(ts, 'yyyyMMdd''T''HHmm') FROM moments;
