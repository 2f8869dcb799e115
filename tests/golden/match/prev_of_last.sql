-- PREV and NEXT around FIRST and LAST.
-- flink: no
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, a BIGINT, b BIGINT, c BIGINT, d BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, a, b, c, d FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES
    PREV(FIRST(B.id)) AS a, NEXT(LAST(B.id, 1), 2) AS b, PREV(LAST(id * 10, 1), 1) AS c, NEXT(FIRST(B.id, 1)) AS d
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B{1,3} X)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b' AND (B.v >= PREV(FIRST(A.v)) OR PREV(LAST(A.v)) IS NULL OR B.v IS NULL OR B.v > 2)
);
