-- HOP: slide first, then size; each row is in size / slide windows.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (auction BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT auction, window_start, window_end, COUNT(*), SUM(price)
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(rt), INTERVAL '10' SECOND, INTERVAL '30' SECOND))
GROUP BY auction, window_start, window_end;
