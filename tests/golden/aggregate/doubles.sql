-- Running aggregates of doubles that are exact in binary.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (bidder STRING, n BIGINT, total DOUBLE, low DOUBLE, high DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT bidder, COUNT(rating), SUM(rating), MIN(rating), MAX(rating) FROM bids GROUP BY bidder;
