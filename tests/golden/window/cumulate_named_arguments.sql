-- CUMULATE with named arguments and without key, over data with a pause.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, window_end, COUNT(*), SUM(qty)
FROM TABLE(CUMULATE(DATA => TABLE ticks, TIMECOL => DESCRIPTOR(rt), STEP => INTERVAL '10' SECOND, SIZE => INTERVAL '30' SECOND))
GROUP BY window_start, window_end;
