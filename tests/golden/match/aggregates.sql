-- Aggregates over the rows of a variable and of the match; none where there are no rows, NULLs do not count.
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

CREATE TABLE `out` (k STRING, a BIGINT, n BIGINT, n_all BIGINT, nv BIGINT, s BIGINT, mean INT, lo INT, hi INT,
  d BIGINT, f BIGINT, e BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT k, a, n, n_all, nv, s, mean, lo, hi, d, f, e FROM steps
MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt
  MEASURES
    A.id AS a, COUNT(X.*) AS n, COUNT(*) AS n_all, COUNT(X.v) AS nv, SUM(X.v) AS s, AVG(X.v) AS mean, MIN(X.v) AS lo, MAX(v) AS hi,
    COUNT(DISTINCT X.kind) AS d, SUM(X.v * 2 + 1) FILTER (WHERE X.kind = 'b') AS f, MAX(X.v) - MIN(A.v) AS e
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A X{0,5} D)
  DEFINE A AS A.kind = 'a', X AS X.kind <> 'd', D AS D.kind = 'd' OR COUNT(X.*) = 5
);
