-- Windows over a directory of three files that follow each other in time.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE `out` (k STRING, window_start TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, window_start, COUNT(*), SUM(v)
FROM TABLE(TUMBLE(TABLE parts, DESCRIPTOR(rt), INTERVAL '20' SECOND))
GROUP BY k, window_start, window_end;
