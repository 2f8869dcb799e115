-- An interval join of a table with itself.
CREATE TABLE clicks (
  id BIGINT,
  ts BIGINT,
  k BIGINT,
  s STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/clicks.csv', 'format' = 'csv');

CREATE TABLE `out` (a BIGINT, b BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT a.id, b.id FROM clicks a JOIN clicks b ON a.k = b.k AND b.rt BETWEEN a.rt AND a.rt + INTERVAL '1' SECOND AND a.id <> b.id;
