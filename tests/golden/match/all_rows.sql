-- ALL ROWS PER MATCH: every row of a match with all columns; measures are RUNNING unless they say FINAL.
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

CREATE TABLE `out` (id BIGINT, k STRING, kind STRING, v INT, m BIGINT, c STRING, so_far BIGINT, whole BIGINT,
  first_b BIGINT, last_b BIGINT, final_b BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, k, kind, v, m, c, so_far, whole, first_b, last_b, final_b FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES
    MATCH_NUMBER() AS m, CLASSIFIER() AS c,
    COUNT(*) AS so_far, FINAL COUNT(*) AS whole,
    FIRST(B.id) AS first_b, RUNNING LAST(B.id) AS last_b, FINAL LAST(B.id) AS final_b
  ALL ROWS PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B* C)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b', C AS C.kind = 'c'
);
