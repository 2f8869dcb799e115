-- FIRST_VALUE and LAST_VALUE that take NULL for a value, NTH_VALUE, and unbounded frames.
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

CREATE TABLE `out` (id BIGINT, f DOUBLE, l DOUBLE, third DOUBLE, uf DOUBLE, ul DOUBLE, fourth BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

CREATE VIEW gaps AS SELECT id, symbol, qty, rt, CASE WHEN MOD(id, 3) = 0 THEN CAST(NULL AS DOUBLE) ELSE price END AS p FROM trades;

INSERT INTO `out`
SELECT id, FIRST_VALUE(p) RESPECT NULLS OVER a, LAST_VALUE(p) RESPECT NULLS OVER a, NTH_VALUE(p, 3) OVER a,
  FIRST_VALUE(p) OVER b, LAST_VALUE(p) OVER b, NTH_VALUE(qty, 4) OVER b FROM gaps
WINDOW a AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '4' SECOND PRECEDING AND CURRENT ROW),
  b AS (PARTITION BY symbol ORDER BY rt);
