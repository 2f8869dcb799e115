-- A running aggregate over a UNION ALL of two files.
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

CREATE TABLE `out` (k STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT k, COUNT(*), SUM(v) FROM (SELECT k, v FROM parts UNION ALL SELECT k, v FROM extra) GROUP BY k;
