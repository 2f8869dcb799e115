-- Rows at or behind the watermark (by far more than the delay) are dropped and count in no other row's range.
-- batch: no
CREATE TABLE late (
  id BIGINT,
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, k STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, k, COUNT(*) OVER w, SUM(v) OVER w FROM late
WINDOW w AS (PARTITION BY k ORDER BY rt RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW);
