-- Bounds with arithmetic on both sides, none of which holds zero: the left row comes one to three seconds later.
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

CREATE TABLE `out` (a BIGINT, b BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT c.id, w.id FROM clicks c LEFT JOIN visits w
ON w.k = c.k AND c.rt - INTERVAL '1' SECOND >= w.rt AND c.rt - INTERVAL '2' SECOND < w.rt + INTERVAL '1' SECOND;
