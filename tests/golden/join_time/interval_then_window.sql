-- The times of an interval join are event time still: windows over its result.
CREATE TABLE clicks (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/clicks.csv', 'format' = 'csv');

CREATE TABLE visits (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/visits.csv', 'format' = 'csv');

CREATE TABLE `out` (window_start TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, COUNT(*), SUM(v) FROM TABLE(TUMBLE(TABLE (
  SELECT w.rt AS wrt, c.v + w.v AS v FROM clicks c JOIN visits w
  ON c.k = w.k AND c.rt BETWEEN w.rt - INTERVAL '2' SECOND AND w.rt + INTERVAL '2' SECOND), DESCRIPTOR(wrt), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
