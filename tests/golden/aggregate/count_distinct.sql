-- COUNT(DISTINCT) of texts and numbers next to plain aggregates.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (auction BIGINT, bidders BIGINT, prices BIGINT, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT auction, COUNT(DISTINCT bidder), COUNT(DISTINCT price), COUNT(*) FROM bids WHERE ts < 1704067260000 GROUP BY auction;
