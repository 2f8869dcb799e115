-- COUNT(DISTINCT) in windows, two columns, next to plain aggregates.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_start TIMESTAMP(3), bidders BIGINT, auctions BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, COUNT(DISTINCT bidder), COUNT(DISTINCT auction), COUNT(*)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '4' SECOND))
GROUP BY window_start, window_end;
