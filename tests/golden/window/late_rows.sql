-- Rows that come after the end of their window (by far more than the delay) are dropped, rows out of order within it are not.
-- batch: no
CREATE TABLE late (
  id BIGINT,
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, window_start TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, window_start, COUNT(*), SUM(v)
FROM TABLE(TUMBLE(TABLE late, DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY k, window_start, window_end;
