-- The rows end long before the versions do.
CREATE TABLE few (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/few.csv', 'format' = 'csv');

CREATE TABLE rates (
  k BIGINT,
  ts BIGINT,
  rate DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  PRIMARY KEY (k) NOT ENFORCED,
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/rates.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, rate DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT f.id, r.rate FROM few AS f LEFT JOIN rates FOR SYSTEM_TIME AS OF f.rt AS r ON f.k = r.k;
