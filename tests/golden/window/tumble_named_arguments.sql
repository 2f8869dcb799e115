-- TUMBLE with named arguments and two keys; one key is not written.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (window_end TIMESTAMP(3), bidder STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_end, bidder, COUNT(*), SUM(price)
FROM TABLE(TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(rt), SIZE => INTERVAL '1' MINUTE))
WHERE auction <= 4
GROUP BY window_start, window_end, auction, bidder;
