-- A running aggregate over the results of windows.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (bidder STRING, windows_ BIGINT, best BIGINT, worst BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT bidder, COUNT(*), MAX(total), MIN(total)
FROM (
  SELECT bidder, SUM(price) AS total
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '10' SECOND))
  GROUP BY bidder, window_start, window_end
)
GROUP BY bidder;
