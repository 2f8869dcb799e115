-- Rows whose window is over when they come are in no ranking: 5, 12 and 13 of late.csv. By hand.
-- batch: no
CREATE TABLE late (
  id BIGINT,
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late.csv', 'format' = 'csv');

CREATE TABLE best (window_start TIMESTAMP(3), id BIGINT, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/best', 'format' = 'csv');

INSERT INTO best
SELECT window_start, id, v
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v DESC, id) AS rn
  FROM TABLE(TUMBLE(TABLE late, DESCRIPTOR(rt), INTERVAL '5' SECOND)))
WHERE rn = 1;
