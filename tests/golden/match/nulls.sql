-- A condition that is NULL does not hold; IS NULL finds what was not matched.
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, a BIGINT, b BIGINT, c BIGINT, a_v INT, missing BOOLEAN)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, a, b, c, a_v, missing FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES A.id AS a, B.id AS b, C.id AS c, A.v AS a_v, B.id IS NULL AS missing
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B* C)
  DEFINE A AS A.v < 8, B AS B.v > A.v, C AS C.v <= A.v OR C.v IS NULL
);
