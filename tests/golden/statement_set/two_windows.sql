-- Windows of different size over one source, side by side.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE short (window_start TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/short', 'format' = 'csv');

CREATE TABLE long (window_start TIMESTAMP(3), bidder STRING, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/long', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO short SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '3' SECOND)) GROUP BY window_start, window_end;
INSERT INTO long
SELECT window_start, bidder, SUM(price) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '2' MINUTE)) GROUP BY window_start, window_end, bidder;
END;
