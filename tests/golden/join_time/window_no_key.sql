-- A window join without a key, one side filtered.
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
SELECT c.id, w.id, c.window_start FROM (SELECT * FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(rt), INTERVAL '5' SECOND)) AS x WHERE v > 80) AS c
JOIN (SELECT * FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(rt), INTERVAL '5' SECOND)) AS y WHERE v > 90) AS w ON c.window_start = w.window_start AND c.window_end = w.window_end;
