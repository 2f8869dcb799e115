-- Rows of overlapping windows, joined in each of them.
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

CREATE TABLE `out` (a BIGINT, b BIGINT, window_start TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT c.id, w.id, c.window_start
FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '6' SECOND)) AS c
JOIN TABLE(HOP(TABLE visits, DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '6' SECOND)) AS w
ON c.k = w.k AND c.window_start = w.window_start AND c.window_end = w.window_end AND c.v < w.v;
