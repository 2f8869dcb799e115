-- Counting the rows of a SELECT DISTINCT.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (auction BIGINT, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT auction, COUNT(*) FROM (SELECT DISTINCT auction, bidder FROM bids WHERE price > 400) GROUP BY auction;
