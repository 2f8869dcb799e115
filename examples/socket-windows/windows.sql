-- Readings of sensors come as JSON lines over TCP; every ten seconds of event time the highest and
-- the mean temperature of each sensor leave.

CREATE TABLE readings (
  sensor STRING,
  `at` TIMESTAMP(3),
  celsius DOUBLE,
  WATERMARK FOR `at` AS `at` - INTERVAL '2' SECOND
) WITH (
  'connector' = 'socket',
  'mode' = 'listener',
  'port' = '7007',
  'format' = 'json'
);

CREATE TABLE per_ten_seconds (sensor STRING, window_start TIMESTAMP(3), readings BIGINT, highest DOUBLE, mean DOUBLE)
WITH ('connector' = 'print');

INSERT INTO per_ten_seconds
SELECT sensor, window_start, COUNT(*), MAX(celsius), AVG(celsius)
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
GROUP BY sensor, window_start, window_end;
