-- Rows that waited are not late for the windows above.
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

CREATE TABLE `out` (window_end TIMESTAMP(3), n BIGINT, rising BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

CREATE VIEW moves AS
SELECT rt, price, LEAD(price) OVER (PARTITION BY symbol ORDER BY rt) AS next_ FROM trades;

INSERT INTO `out`
SELECT window_end, COUNT(*), COUNT(*) FILTER (WHERE next_ > price)
FROM TABLE(TUMBLE(TABLE moves, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
