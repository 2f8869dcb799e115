-- A view over a versioned table that passes key and time on under other names.
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

CREATE VIEW double_rates AS SELECT rt AS since, rate * 2 AS twice, k AS code FROM rates WHERE k <> 3;

CREATE TABLE `out` (id BIGINT, rate DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT c.id, d.twice FROM clicks AS c JOIN double_rates FOR SYSTEM_TIME AS OF c.rt AS d ON d.code = c.k;
