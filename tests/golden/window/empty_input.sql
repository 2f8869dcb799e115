-- A window over an empty file: no rows.
CREATE TABLE nothing (
  ts BIGINT,
  k STRING,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/empty.csv', 'format' = 'csv');

CREATE TABLE `out` (window_start TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE nothing, DESCRIPTOR(rt), INTERVAL '5' SECOND)) GROUP BY window_start, window_end;
