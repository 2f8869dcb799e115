-- Two patterns over one table in one job; two inserts read it once.
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, x BIGINT, y BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

CREATE TABLE `back` (k STRING, x BIGINT, y BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/back', 'format' = 'csv');

INSERT INTO `out`
SELECT k, x, y FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES A.id AS x, B.id AS y
  PATTERN (A B)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b'
);

INSERT INTO `back`
SELECT k, x, y FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES B.id AS x, A.id AS y
  PATTERN (B A)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b'
);
