-- Volume-weighted average price per symbol and hopping window, as cents.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (symbol STRING, window_end TIMESTAMP(3), vwap_cents BIGINT, volume BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, window_end, CAST(SUM(price * qty) * 100 AS BIGINT) / SUM(qty), SUM(qty)
FROM TABLE(HOP(TABLE trades, DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
GROUP BY symbol, window_start, window_end;
