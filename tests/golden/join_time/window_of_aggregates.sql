-- Aggregates of two tables in the same windows, side by side.
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

CREATE TABLE `out` (k BIGINT, window_start TIMESTAMP(3), n BIGINT, m BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT a.k, a.window_start, a.n, b.n
FROM (SELECT k, window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(rt), INTERVAL '5' SECOND)) AS x GROUP BY k, window_start, window_end) a
LEFT JOIN (SELECT k, window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(rt), INTERVAL '5' SECOND)) AS y GROUP BY k, window_start, window_end) b
ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end AND a.n <= b.n;
