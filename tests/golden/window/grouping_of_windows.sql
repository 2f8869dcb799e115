-- ROLLUP over the results of windows, in the same windows. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE sums (window_start TIMESTAMP(3), symbol STRING, n BIGINT, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/sums', 'format' = 'csv');

INSERT INTO sums
SELECT window_start, symbol, COUNT(*), SUM(qty)
FROM (
  SELECT window_start, window_end, symbol, id % 3 AS k, SUM(qty) AS qty
  FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, symbol, id % 3)
GROUP BY window_start, window_end, ROLLUP (symbol);
