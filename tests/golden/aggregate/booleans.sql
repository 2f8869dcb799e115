-- MIN and MAX of an expression by CASE, and counting conditions.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (bidder STRING, high_ BIGINT, low_ BIGINT, any_large INT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT bidder, COUNT(CASE WHEN price >= 250 THEN 1 END), SUM(CASE WHEN price < 250 THEN CAST(1 AS BIGINT) ELSE 0 END), MAX(CASE WHEN price > 498 THEN 1 ELSE 0 END)
FROM bids GROUP BY bidder;
