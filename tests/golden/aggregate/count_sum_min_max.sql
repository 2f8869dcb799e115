-- Running aggregates of a BIGINT with NULLs over 2,000 rows and 8 keys.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (bidder STRING, n BIGINT, n_price BIGINT, total BIGINT, low BIGINT, high BIGINT, mean BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT bidder, COUNT(*), COUNT(price), SUM(price), MIN(price), MAX(price), AVG(price) FROM bids GROUP BY bidder;
