-- Windows by different keys in one query.
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

CREATE TABLE `out` (id BIGINT, own BIGINT, total BIGINT, parity BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, SUM(qty) OVER a, SUM(qty) OVER b, COUNT(*) OVER c FROM ticks
WINDOW a AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW),
  b AS (ORDER BY rt RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW),
  c AS (PARTITION BY MOD(qty, 2) ORDER BY rt RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW);
