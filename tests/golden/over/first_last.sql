-- FIRST_VALUE and LAST_VALUE over sliding frames leave NULLs out.
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

CREATE TABLE `out` (id BIGINT, first_id BIGINT, f DOUBLE, l DOUBLE, first_qty BIGINT, rl DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

CREATE VIEW gaps AS SELECT id, symbol, qty, rt, CASE WHEN MOD(id, 3) = 0 THEN CAST(NULL AS DOUBLE) ELSE price END AS p FROM trades;

INSERT INTO `out`
SELECT id, FIRST_VALUE(id) OVER a, FIRST_VALUE(p) OVER a, LAST_VALUE(p) OVER a, FIRST_VALUE(qty) OVER b, LAST_VALUE(p) OVER b FROM gaps
WINDOW a AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '4' SECOND PRECEDING AND CURRENT ROW),
  b AS (PARTITION BY symbol ORDER BY rt ROWS BETWEEN 6 PRECEDING AND CURRENT ROW);
