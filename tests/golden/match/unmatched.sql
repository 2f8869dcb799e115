-- WITH UNMATCHED ROWS: rows outside matches come too, their measures are NULL.
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

CREATE TABLE `out` (id BIGINT, k STRING, m BIGINT, c STRING, last_kind STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, k, m, c, last_kind FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES MATCH_NUMBER() AS m, CLASSIFIER() AS c, kind AS last_kind
  ALL ROWS PER MATCH WITH UNMATCHED ROWS
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B+)
  DEFINE A AS A.kind = 'a', B AS B.kind = 'b'
);
