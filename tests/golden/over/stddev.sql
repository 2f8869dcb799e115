-- STDDEV and VAR over a sliding frame: what left leaves nothing behind.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, vp DOUBLE, vs DOUBLE, sp DOUBLE, ss DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, VAR_POP(price) OVER w, VAR_SAMP(price) OVER w, STDDEV_POP(qty) OVER w, STDDEV_SAMP(price) OVER w FROM ticks
WINDOW w AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW);
