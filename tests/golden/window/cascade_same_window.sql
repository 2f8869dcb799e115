-- An aggregate of window aggregates over the same window columns.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_start TIMESTAMP(3), window_end TIMESTAMP(3), bidders BIGINT, best BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, window_end, COUNT(*), MAX(total)
FROM (
  SELECT bidder, window_start, window_end, SUM(price) AS total
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '20' SECOND))
  GROUP BY bidder, window_start, window_end
)
GROUP BY window_start, window_end;
