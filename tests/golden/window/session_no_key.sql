-- SESSION without key, with named arguments and the window's time.
CREATE TABLE clicks (
  ts BIGINT,
  who STRING,
  n BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/sessions.csv', 'format' = 'csv');

CREATE TABLE `out` (window_start TIMESTAMP(3), window_end TIMESTAMP(3), window_time TIMESTAMP_LTZ(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, window_end, window_time, COUNT(*)
FROM TABLE(SESSION(DATA => TABLE clicks, TIMECOL => DESCRIPTOR(rt), GAP => INTERVAL '5' SECOND))
GROUP BY window_start, window_end, window_time;
