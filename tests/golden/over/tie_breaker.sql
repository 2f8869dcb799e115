-- A second column of ORDER BY decides between rows of the same time.
-- flink: no
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, n BIGINT, before_ BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, ROW_NUMBER() OVER w, LAG(id) OVER w FROM ticks
WINDOW w AS (PARTITION BY symbol ORDER BY rt, id DESC);
