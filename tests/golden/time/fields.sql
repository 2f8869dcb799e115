-- EXTRACT and its short forms.
CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (
  n INT,
  y BIGINT,
  q BIGINT,
  m BIGINT,
  d BIGINT,
  doy BIGINT,
  dow BIGINT,
  h BIGINT,
  mi BIGINT,
  s BIGINT,
  wk BIGINT
)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, YEAR(ts), QUARTER(ts), EXTRACT(MONTH FROM ts), DAYOFMONTH(ts), DAYOFYEAR(ts), DAYOFWEEK(ts), HOUR(ts), EXTRACT(MINUTE FROM ts), SECOND(ts), WEEK(ts) FROM moments WHERE n <> 3;
