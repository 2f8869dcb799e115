-- A window over the results of OVER: the rowtime is still a time attribute.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW smooth AS
SELECT symbol, rt, COUNT(*) OVER (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW) AS n FROM trades;

CREATE TABLE `out` (symbol STRING, window_start TIMESTAMP(3), busiest BIGINT, rows_ BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, window_start, MAX(n), COUNT(*)
FROM TABLE(TUMBLE(TABLE smooth, DESCRIPTOR(rt), INTERVAL '10' SECOND)) GROUP BY symbol, window_start, window_end;
