-- Without PARTITION BY all rows are one partition.
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (a BIGINT, b BIGINT, same BOOLEAN)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT a, b, same FROM steps
MATCH_RECOGNIZE (
  ORDER BY rt
  MEASURES A.id AS a, B.id AS b, A.k = B.k AS same
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b'
);
