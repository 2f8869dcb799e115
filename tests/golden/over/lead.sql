-- The value of a later row: rows wait for it, at the end in vain.
-- flink: no
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, next_ DOUBLE, fifth BIGINT, before_ BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, LEAD(price) OVER w, LEAD(qty, 5, 0) OVER w, LAG(qty) OVER w FROM trades
WINDOW w AS (PARTITION BY symbol ORDER BY rt);
