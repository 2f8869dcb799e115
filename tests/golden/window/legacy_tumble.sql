-- The older form: GROUP BY TUMBLE(…), TUMBLE_START, TUMBLE_END.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (bidder STRING, ws TIMESTAMP(3), we TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT bidder, TUMBLE_START(rt, INTERVAL '20' SECOND), TUMBLE_END(rt, INTERVAL '20' SECOND), COUNT(*)
FROM bids GROUP BY bidder, TUMBLE(rt, INTERVAL '20' SECOND);
