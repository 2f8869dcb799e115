-- One source, two sinks: a filter and a window.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE largest (ts BIGINT, bidder STRING, price BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/largest', 'format' = 'csv');

CREATE TABLE per_window (window_start TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/per_window', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO largest SELECT ts, bidder, price FROM bids WHERE price >= 495;
INSERT INTO per_window
SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '30' SECOND)) GROUP BY window_start, window_end;
END;
