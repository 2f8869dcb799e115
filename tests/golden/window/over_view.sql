-- A window over a view that filters, computes and passes the time column on.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TEMPORARY VIEW expensive AS
SELECT UPPER(bidder) AS who, price * 100 AS cents, rt AS at_ FROM bids WHERE price > 300;

CREATE TABLE `out` (who STRING, window_start TIMESTAMP(3), cents BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT who, window_start, SUM(cents)
FROM TABLE(TUMBLE(TABLE expensive, DESCRIPTOR(at_), INTERVAL '30' SECOND))
GROUP BY who, window_start, window_end;
