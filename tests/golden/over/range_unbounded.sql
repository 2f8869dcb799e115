-- RANGE UNBOUNDED PRECEDING: running totals in order of time.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, n BIGINT, qty BIGINT, high DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, COUNT(*) OVER w, SUM(qty) OVER w, MAX(price) OVER w FROM ticks
WINDOW w AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW);
