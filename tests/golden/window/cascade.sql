-- Windows of windows: window_time of the small windows is the time of the large ones.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TEMPORARY VIEW per_five AS
SELECT bidder, window_time AS wt, SUM(price) AS total, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY bidder, window_start, window_end, window_time;

CREATE TABLE `out` (bidder STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), best BIGINT, n BIGINT, windows_ BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT bidder, window_start, window_end, MAX(total), SUM(n), COUNT(*)
FROM TABLE(TUMBLE(TABLE per_five, DESCRIPTOR(wt), INTERVAL '20' SECOND))
GROUP BY bidder, window_start, window_end;
