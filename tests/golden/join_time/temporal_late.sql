-- Late rows and late versions take no part in a temporal join.
-- batch: no
-- flink: no
CREATE TABLE clicks (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late_clicks.csv', 'format' = 'csv');

CREATE TABLE rates (
  k BIGINT,
  ts BIGINT,
  rate DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  PRIMARY KEY (k) NOT ENFORCED,
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late_rates.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, rate DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT c.id, r.rate FROM clicks AS c LEFT JOIN rates FOR SYSTEM_TIME AS OF c.rt AS r ON c.k = r.k;
