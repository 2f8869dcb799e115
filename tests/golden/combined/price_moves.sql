-- Moves against the lowest price of the last seconds, classified and counted per window.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW moves AS
SELECT symbol, rt, price, MIN(price) OVER w AS low, MAX(price) OVER w AS high FROM trades
WINDOW w AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '4' SECOND PRECEDING AND CURRENT ROW);

CREATE TEMPORARY VIEW kinds AS
SELECT symbol, rt, CASE WHEN price = high THEN 'up' WHEN price = low THEN 'down' ELSE 'between' END AS kind FROM moves;

CREATE TABLE `out` (symbol STRING, kind STRING, window_start TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, kind, window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE kinds, DESCRIPTOR(rt), INTERVAL '10' SECOND)) GROUP BY symbol, kind, window_start, window_end;
