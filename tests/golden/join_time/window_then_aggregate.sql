-- The pairs of a window join counted in their windows.
CREATE TABLE clicks (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/clicks.csv', 'format' = 'csv');

CREATE TABLE visits (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/visits.csv', 'format' = 'csv');

CREATE TABLE `out` (window_start TIMESTAMP(3), n BIGINT, best BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT c.window_start, COUNT(*), MAX(c.v + w.v) FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(rt), INTERVAL '5' SECOND)) AS c JOIN TABLE(TUMBLE(TABLE visits, DESCRIPTOR(rt), INTERVAL '5' SECOND)) AS w ON c.k = w.k AND c.window_start = w.window_start AND c.window_end = w.window_end
GROUP BY c.window_start, c.window_end;
