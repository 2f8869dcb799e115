-- Greedy rows are given back until the rest fits, with conditions that look at rows given back.
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, first_id BIGINT, last_id BIGINT, n BIGINT, y BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, first_id, last_id, n, y FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES FIRST(id) AS first_id, LAST(id) AS last_id, COUNT(X.*) AS n, COUNT(Y.*) AS y
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (X{1,6} Y{1,2} B)
  DEFINE Y AS Y.v > LAST(X.v) OR Y.kind = 'c', B AS B.kind = 'b' AND B.v <> LAST(Y.v) AND COUNT(X.*) > 1
);
