-- LAG over rows with NULLs, which count or do not.
-- flink: no
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, one DOUBLE, two DOUBLE, with_nulls DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

CREATE VIEW gaps AS SELECT id, symbol, rt, CASE WHEN MOD(id, 3) = 0 THEN CAST(NULL AS DOUBLE) ELSE price END AS p FROM trades;

INSERT INTO `out`
SELECT id, LAG(p) IGNORE NULLS OVER w, LAG(p, 2) IGNORE NULLS OVER w, LAG(p) OVER w FROM gaps
WINDOW w AS (PARTITION BY symbol ORDER BY rt);
