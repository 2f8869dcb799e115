-- {- -}: rows that must be there and are not put out; measures see them.
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

CREATE TABLE `out` (id BIGINT, k STRING, c STRING, n BIGINT, b BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, k, c, n, b FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES CLASSIFIER() AS c, COUNT(*) AS n, LAST(B.id) AS b
  ALL ROWS PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A {- B+ -} C)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b', C AS C.kind IN ('a', 'c')
);
