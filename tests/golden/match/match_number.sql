-- MATCH_NUMBER counts the matches of a partition.
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

CREATE TABLE `out` (k STRING, n BIGINT, c STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, n, c, id FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS c, LAST(id) AS id
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A (B | C))
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b', C AS C.kind = 'c'
);
