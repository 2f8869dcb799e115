-- HOP with an offset.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE `out` (k STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, window_start, window_end, SUM(v)
FROM TABLE(HOP(TABLE parts, DESCRIPTOR(rt), INTERVAL '20' SECOND, INTERVAL '40' SECOND, INTERVAL '3' SECOND))
GROUP BY k, window_start, window_end;
