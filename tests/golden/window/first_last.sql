-- FIRST_VALUE, LAST_VALUE and LISTAGG in windows, in the order in which rows come.
-- batch: no
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (window_end TIMESTAMP(3), symbol STRING, f DOUBLE, l DOUBLE, ids STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_end, symbol, FIRST_VALUE(price), LAST_VALUE(price), LISTAGG(CAST(id AS STRING), '|')
FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY window_start, window_end, symbol;
