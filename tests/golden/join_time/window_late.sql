-- Rows whose window is over for their own file take no part in a window join.
-- batch: no
-- flink: no
CREATE TABLE clicks (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late_clicks.csv', 'format' = 'csv');

CREATE TABLE visits (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late_visits.csv', 'format' = 'csv');

CREATE TABLE `out` (a BIGINT, b BIGINT, window_start TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT c.id, w.id, COALESCE(c.window_start, w.window_start) FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(rt), INTERVAL '5' SECOND)) AS c
FULL JOIN TABLE(TUMBLE(TABLE visits, DESCRIPTOR(rt), INTERVAL '5' SECOND)) AS w ON c.k = w.k AND c.window_start = w.window_start AND c.window_end = w.window_end;
