-- PERCENTILE and STDDEV in overlapping windows.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_end TIMESTAMP(3), median DOUBLE, high DOUBLE, sp DOUBLE, vs DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_end, PERCENTILE(price, 0.5), PERCENTILE(price, 0.95), STDDEV_POP(price), VAR_SAMP(price)
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
