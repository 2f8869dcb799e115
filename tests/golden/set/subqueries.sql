-- Subqueries in FROM, nested, with renamed columns.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (who STRING, double_price BIGINT, at_ BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT who, double_price, at_ FROM (
  SELECT bidder AS who, p * 2 AS double_price, at_ FROM (
    SELECT bidder, price AS p, ts AS at_, auction FROM bids WHERE auction = 7
  ) AS inner_ WHERE p > 400
) AS outer_ WHERE double_price < 960;
