-- FILTER (WHERE …) on aggregates in windows.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_start TIMESTAMP(3), bidder STRING, n_large BIGINT, total_small BIGINT, anns BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, bidder, COUNT(*) FILTER (WHERE price >= 250), SUM(price) FILTER (WHERE price < 100), COUNT(DISTINCT auction) FILTER (WHERE bidder = 'ann')
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '30' SECOND))
GROUP BY window_start, window_end, bidder;
