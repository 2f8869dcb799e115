-- HAVING with an upper bound: every group passes at first and some leave again.
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

INSERT INTO `out` SELECT auction, COUNT(*) FROM bids GROUP BY auction HAVING COUNT(*) <= 95;
