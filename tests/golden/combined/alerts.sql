-- A user's alerts: clean the input in a view, average per window, keep the busy windows, label them.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TEMPORARY VIEW clean AS
SELECT UPPER(bidder) AS who, price, rt FROM bids WHERE price IS NOT NULL AND bidder <> 'gus';

CREATE TABLE alerts (who STRING, at_ STRING, mean BIGINT, level STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/alerts', 'format' = 'csv');

INSERT INTO alerts
SELECT who, DATE_FORMAT(window_end, 'HH:mm:ss'), mean, CASE WHEN mean > 320 THEN 'high' WHEN mean < 180 THEN 'low' ELSE 'normal' END
FROM (
  SELECT who, window_start, window_end, AVG(price) AS mean, COUNT(*) AS n
  FROM TABLE(TUMBLE(TABLE clean, DESCRIPTOR(rt), INTERVAL '10' SECOND))
  GROUP BY who, window_start, window_end
)
WHERE n >= 10;
