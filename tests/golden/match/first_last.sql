-- FIRST and LAST with offsets; where there is no such row, NULL.
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, f0 BIGINT, f1 BIGINT, f2 BIGINT, l0 BIGINT, l1 BIGINT, l2 BIGINT, x BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, f0, f1, f2, l0, l1, l2, x FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES
    FIRST(B.id) AS f0, FIRST(B.id, 1) AS f1, FIRST(B.id, 2) AS f2,
    B.id AS l0, LAST(B.id, 1) AS l1, LAST(B.id, 2) AS l2,
    LAST(B.id + B.v, 1) AS x
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B* C)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b', C AS C.id - FIRST(A.id) < 20 AND C.kind <> 'b'
);
