-- A function of tables that keeps state by key and gets its rows in order of time.
-- flink: no
CREATE FUNCTION counted RETURNS TABLE (n BIGINT) LANGUAGE PROCESS AS '"${TIDEMILL}" function count' WITH ('batch.rows' = '50');

CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (symbol STRING, n BIGINT, rt TIMESTAMP_LTZ(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

CREATE TABLE per_minute (symbol STRING, w TIMESTAMP(3), most BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/per_minute', 'format' = 'csv');

CREATE TEMPORARY VIEW counts AS
SELECT * FROM counted(input => TABLE ticks PARTITION BY symbol, on_time => DESCRIPTOR(rt), uid => 'counts');

INSERT INTO `out` SELECT symbol, n, rowtime FROM counts;
-- What the function gives has event time again.
INSERT INTO per_minute
SELECT symbol, window_start, MAX(n) FROM TUMBLE(TABLE counts, DESCRIPTOR(rowtime), INTERVAL '10' SECOND)
GROUP BY symbol, window_start, window_end;
