-- How many keys have each count: rows move from group to group.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n BIGINT, keys_ BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT n, COUNT(*) FROM (SELECT auction, bidder, COUNT(*) AS n FROM bids GROUP BY auction, bidder) GROUP BY n;
