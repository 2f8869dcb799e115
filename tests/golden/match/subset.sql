-- SUBSET: several variables under one name, in conditions, measures and SKIP TO.
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

CREATE TABLE `out` (k STRING, first_s BIGINT, last_s BIGINT, n BIGINT, total INT, c STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, first_s, last_s, n, total, c FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES FIRST(S.id) AS first_s, LAST(S.id) AS last_s, COUNT(S.*) AS n, CAST(SUM(S.v) AS INT) AS total, CLASSIFIER(S) AS c
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO LAST S
  PATTERN (X A B* C)
  SUBSET S = (A, C), ALL_OF = (X, A, B, C)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b', C AS C.kind <> 'b' AND C.id > FIRST(ALL_OF.id)
);
