-- CREATE TABLE … LIKE takes columns, computed columns, watermark and options; the new table adds and overwrites.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE extra (
  twice AS v * 2
) WITH ('path' = '${DATA}/extra.csv')
LIKE parts;

CREATE TABLE `out` (window_start TIMESTAMP(3), k STRING, total BIGINT, twice BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, k, SUM(v), SUM(twice)
FROM TABLE(TUMBLE(TABLE extra, DESCRIPTOR(rt), INTERVAL '30' SECOND))
GROUP BY window_start, window_end, k;
