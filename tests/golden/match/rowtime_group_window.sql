-- A match that is decided only by the row behind it has the time of its own last row.
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

CREATE TABLE `out` (window_start TIMESTAMP(3), window_end TIMESTAMP(3), symbol STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT TUMBLE_START(mrt, INTERVAL '3' SECOND), TUMBLE_END(mrt, INTERVAL '3' SECOND), symbol, COUNT(*), SUM(qty)
FROM trades
MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY rt
  MEASURES A.qty AS qty, MATCH_ROWTIME(rt) AS mrt
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A U+)
  DEFINE U AS U.price > LAST(U.price, 1) OR (LAST(U.price, 1) IS NULL AND U.price > A.price)
) AS m
GROUP BY TUMBLE(mrt, INTERVAL '3' SECOND), symbol;
