-- Times before 1970 and across it, under WITHIN.
-- flink: no
CREATE TABLE history (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/before_1970.csv', 'format' = 'csv');

CREATE TABLE `out` (a BIGINT, b BIGINT, n BIGINT, mrt TIMESTAMP_LTZ(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT a, b, n, mrt FROM history
MATCH_RECOGNIZE (
  ORDER BY rt
  MEASURES FIRST(A.v) AS a, B.v AS b, COUNT(*) AS n, MATCH_ROWTIME() AS mrt
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A+ B) WITHIN INTERVAL '12.501' SECOND
  DEFINE B AS B.v > LAST(A.v)
);
