-- Ranges over event times before 1970 and across it. (Flink drops the rows up to 1970 here, without a word.)
-- flink: no
CREATE TABLE history (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/before_1970.csv', 'format' = 'csv');

CREATE TABLE `out` (ts BIGINT, n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT ts, COUNT(*) OVER w, SUM(v) OVER w FROM history WINDOW w AS (ORDER BY rt RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW);
