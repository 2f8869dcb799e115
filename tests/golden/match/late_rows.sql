-- Rows behind the watermark are dropped and stand in no match.
-- batch: no
CREATE TABLE late (
  id BIGINT,
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, a BIGINT, b BIGINT, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, a, b, v FROM late
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES A.id AS a, B.id AS b, A.v + B.v AS v
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B)
  DEFINE A AS TRUE
);
