-- UNION without ALL removes doubles, as an updating query.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE extra (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/extra.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, big BOOLEAN)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT k, v > 50 FROM parts UNION SELECT k, v > 50 FROM extra;
