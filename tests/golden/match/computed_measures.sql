-- Measures that are computed: casts, functions, CASE, texts, arithmetic of times.
CREATE TABLE steps (
  id BIGINT,
  ts BIGINT,
  k STRING,
  kind STRING,
  v INT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/steps.csv', 'format' = 'csv');

CREATE TABLE `out` (k STRING, label STRING, size STRING, took BIGINT, day STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, label, size, took, `day` FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES
    UPPER(A.kind) || '-' || LAST(B.kind) || CAST(C.v AS STRING) AS label,
    CASE WHEN COUNT(B.*) > 2 THEN 'long' WHEN COUNT(B.*) = 0 THEN 'none' ELSE 'short' END AS size,
    C.ts - A.ts AS took,
    DATE_FORMAT(A.rt, 'yyyy-MM-dd') AS `day`
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B* C)
  DEFINE A AS LOWER(A.kind) = 'a', B AS B.kind IN ('b', 'x'), C AS C.kind LIKE 'c%' AND C.rt - INTERVAL '1' HOUR < A.rt
);
