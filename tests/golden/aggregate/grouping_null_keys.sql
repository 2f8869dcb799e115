-- A NULL among the keys is another group than the NULL of a set that lacks the key. Worked out by DuckDB.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE counts (price BIGINT, g BIGINT, n BIGINT, rated BIGINT)
WITH ('connector' = 'print');

INSERT INTO counts SELECT price, GROUPING(price), COUNT(*), COUNT(rating) FROM bids WHERE price IS NULL OR price < 20 GROUP BY ROLLUP (price);
