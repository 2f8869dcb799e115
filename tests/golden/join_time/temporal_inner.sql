-- Each row with the version of its key valid at its time; keys and times without a version are left out.
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

CREATE TABLE `out` (id BIGINT, rate DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT c.id, r.rate FROM clicks AS c JOIN rates FOR SYSTEM_TIME AS OF c.rt AS r ON c.k = r.k;
