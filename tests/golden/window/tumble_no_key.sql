-- TUMBLE without keys, the average of integers truncated, of doubles over a power of two exact.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_start TIMESTAMP(3), n BIGINT, mean BIGINT, total DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, COUNT(price), AVG(price), SUM(rating)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
