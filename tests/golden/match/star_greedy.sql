-- Greedy A*: as many rows as there are.
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, first_id BIGINT, last_id BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, first_id, last_id, n FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES FIRST(id) AS first_id, LAST(id) AS last_id, COUNT(*) AS n
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A* B)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b'
) AS m;
