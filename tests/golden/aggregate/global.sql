-- Aggregates without GROUP BY: one row.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n BIGINT, total BIGINT, low BIGINT, high BIGINT, first_bidder STRING, ratings DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT COUNT(*), SUM(price), MIN(price), MAX(price), MIN(bidder), SUM(rating) FROM bids;
