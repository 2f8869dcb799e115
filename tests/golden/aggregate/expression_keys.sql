-- Keys that are expressions.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (bucket BIGINT, letter STRING, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT price / 100, UPPER(SUBSTRING(bidder, 1, 1)), COUNT(*) FROM bids WHERE auction > 10 GROUP BY price / 100, UPPER(SUBSTRING(bidder, 1, 1));
