-- COUNT(DISTINCT) in overlapping windows: slices cannot just be added.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_start TIMESTAMP(3), window_end TIMESTAMP(3), auctions BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, window_end, COUNT(DISTINCT auction)
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '6' SECOND))
GROUP BY window_start, window_end;
