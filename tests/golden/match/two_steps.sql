-- Two rows directly behind each other within a second, the second dearer than the first.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (symbol STRING, a_ts BIGINT, b_ts BIGINT, a_price DOUBLE, b_price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, a_ts, b_ts, a_price, b_price FROM trades
 MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY rt
  MEASURES A.ts AS a_ts, B.ts AS b_ts, A.price AS a_price, B.price AS b_price
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B) WITHIN INTERVAL '1' SECOND
  DEFINE A AS A.qty > 40, B AS B.price > A.price * 1.0005);
