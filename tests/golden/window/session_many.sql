-- SESSION over 600 rows and 4 keys with short gaps: many sessions that merge when rows come out of order.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (symbol STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, high DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, window_start, window_end, COUNT(*), MAX(price)
FROM TABLE(SESSION(TABLE ticks PARTITION BY symbol, DESCRIPTOR(rt), INTERVAL '0.6' SECOND))
GROUP BY symbol, window_start, window_end;
