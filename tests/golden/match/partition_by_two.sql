-- PARTITION BY two columns, one of them an expression of a subquery, NULL among its values.
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, half INT, a BIGINT, b BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, half, a, b FROM (SELECT *, v / 5 AS half FROM steps WHERE kind <> 'd')
MATCH_RECOGNIZE (
  PARTITION BY k, half ORDER BY rt
  MEASURES A.id AS a, B.id AS b
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b'
) AS m;
