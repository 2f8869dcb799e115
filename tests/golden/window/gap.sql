-- A pause of half a minute in the data: no windows without rows.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (window_start TIMESTAMP(3), n BIGINT, qty BIGINT, high DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, COUNT(*), SUM(qty), MAX(price)
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
