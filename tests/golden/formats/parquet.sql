-- Parquet read in a stream, in several row groups: windows over the rows of bids.csv.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.parquet', 'format' = 'parquet');

CREATE TABLE `out` (
  bidder STRING,
  window_start TIMESTAMP(3),
  window_end TIMESTAMP(3),
  n BIGINT,
  total BIGINT,
  low BIGINT,
  high DOUBLE
)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT bidder, window_start, window_end, COUNT(*), SUM(price), MIN(price), MAX(rating)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
