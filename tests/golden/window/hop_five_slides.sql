-- HOP with named arguments, size = 5 slides, MIN and MAX.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, low BIGINT, high BIGINT, first_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, window_end, COUNT(*), MIN(price), MAX(price), MIN(bidder)
FROM TABLE(HOP(DATA => TABLE bids, TIMECOL => DESCRIPTOR(rt), SLIDE => INTERVAL '2' SECOND, SIZE => INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
