-- PERCENTILE over a sliding frame.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, median DOUBLE, quarter DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, PERCENTILE(price, 0.5) OVER w, PERCENTILE(qty, 0.25) OVER w FROM ticks
WINDOW w AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '4' SECOND PRECEDING AND CURRENT ROW);
