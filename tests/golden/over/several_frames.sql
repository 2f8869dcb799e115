-- Several frames over the same rows, in one query.
-- flink: no
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, n BIGINT, a BIGINT, b BIGINT, low DOUBLE, high DOUBLE, total DOUBLE, all_ BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, COUNT(*) OVER a, SUM(qty) OVER a, SUM(qty) OVER b, MIN(price) OVER b, MAX(price) OVER c, SUM(price) OVER c, COUNT(*) OVER d FROM ticks
WINDOW a AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '0.5' SECOND PRECEDING AND CURRENT ROW),
  b AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW),
  c AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW),
  d AS (PARTITION BY symbol ORDER BY rt);
