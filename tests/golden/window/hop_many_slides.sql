-- HOP windows of forty slides.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_end TIMESTAMP(3), bidder STRING, n BIGINT, total BIGINT, low DOUBLE, high BIGINT, auctions BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_end, bidder, COUNT(*), SUM(price), MIN(rating), MAX(price), COUNT(DISTINCT auction)
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(rt), INTERVAL '1' SECOND, INTERVAL '40' SECOND))
GROUP BY window_start, window_end, bidder;
