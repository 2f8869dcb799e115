-- The left time stays event time: a window over a temporal join.
CREATE TABLE clicks (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/clicks.csv', 'format' = 'csv');

CREATE TABLE rates (
  k BIGINT,
  ts BIGINT,
  rate DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  PRIMARY KEY (k) NOT ENFORCED,
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/rates.csv', 'format' = 'csv');

CREATE TABLE `out` (window_start TIMESTAMP(3), total DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, SUM(x) FROM TABLE(TUMBLE(TABLE (
  SELECT c.rt, c.v * r.rate AS x FROM clicks AS c JOIN rates FOR SYSTEM_TIME AS OF c.rt AS r ON c.k = r.k), DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
