-- MATCH_ROWTIME is event time: the matches are counted in windows.
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
SELECT window_start, window_end, symbol, COUNT(*), SUM(qty)
FROM TABLE(TUMBLE(TABLE (
  SELECT symbol, qty, mrt FROM trades
  MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY rt
    MEASURES A.qty AS qty, MATCH_ROWTIME() AS mrt
    ONE ROW PER MATCH
    AFTER MATCH SKIP TO NEXT ROW
    PATTERN (A B)
    DEFINE B AS B.price > A.price
  )
), DESCRIPTOR(mrt), INTERVAL '5' SECOND))
GROUP BY window_start, window_end, symbol;
