-- A watermark equal to the time column: rows in order are never late, ties included.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts/part-0.csv', 'format' = 'csv');

CREATE TABLE `out` (window_start TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, COUNT(*), SUM(v)
FROM TABLE(TUMBLE(TABLE parts, DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
