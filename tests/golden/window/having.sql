-- HAVING over windows.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (bidder STRING, window_start TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT bidder, window_start, COUNT(*)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
HAVING COUNT(*) > 15 AND MAX(price) > 450;
