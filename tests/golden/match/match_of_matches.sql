-- A pattern over the matches of a pattern, by MATCH_ROWTIME.
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

CREATE TABLE `out` (symbol STRING, x BIGINT, y BIGINT, gain DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, x, y, gain FROM trades
MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY rt
  MEASURES B.id AS last_id, B.price - A.price AS gain, MATCH_ROWTIME() AS mrt
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B)
  DEFINE A AS A.qty > 50, B AS B.price > A.price
)
MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY mrt
  MEASURES X.last_id AS x, Y.last_id AS y, SUM(gain) AS gain
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (X Y)
  DEFINE Y AS Y.gain > X.gain
) AS m;
