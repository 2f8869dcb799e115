-- A large trade followed directly by one of the same symbol that is dearer by half a per mille, within a second.
-- Runs unchanged on Flink: benches/against-flink.sh
CREATE TABLE trades (
  ts BIGINT, symbol STRING, price DOUBLE, qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${IN}', 'format' = 'csv');
CREATE TABLE rises (symbol STRING, a_ts BIGINT, b_ts BIGINT, a_price DOUBLE, b_price DOUBLE)
  WITH ('connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'csv');
INSERT INTO rises SELECT symbol, a_ts, b_ts, a_price, b_price FROM trades
  MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY rt
    MEASURES A.ts AS a_ts, B.ts AS b_ts, A.price AS a_price, B.price AS b_price
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN (A B) WITHIN INTERVAL '1' SECOND
    DEFINE A AS A.qty > 900, B AS B.price > A.price * 1.0005
  );
