-- SUM(DISTINCT) and COUNT(DISTINCT) of one column.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (bidder STRING, total BIGINT, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT bidder, SUM(DISTINCT price / 50), COUNT(DISTINCT price / 50) FROM bids GROUP BY bidder;
