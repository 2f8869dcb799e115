-- Aggregates without GROUP BY over rows of which none passes: a stream has no row, where batch has one of zero and NULLs.
-- batch: no
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n BIGINT, total BIGINT, low BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT COUNT(*), SUM(price), MIN(price) FROM bids WHERE auction > 1000;
