-- What a dashboard wants of one stream: totals, the last minutes, distinct users, and raw rows of interest.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE totals (bidder STRING, n BIGINT, best BIGINT)
WITH ('connector' = 'print');

CREATE TABLE by_minute (window_start TIMESTAMP(3), n BIGINT, bidders BIGINT, revenue BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/by_minute', 'format' = 'csv');

CREATE TABLE growing (window_start TIMESTAMP(3), window_end TIMESTAMP(3), revenue BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/growing', 'format' = 'csv');

CREATE TABLE wanted (at_ TIMESTAMP(3), bidder STRING, price BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/wanted', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO totals SELECT bidder, COUNT(*), MAX(price) FROM bids GROUP BY bidder;
INSERT INTO by_minute
SELECT window_start, COUNT(*), COUNT(DISTINCT bidder), SUM(price)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
INSERT INTO growing
SELECT window_start, window_end, SUM(price)
FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(rt), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
INSERT INTO wanted SELECT CAST(rt AS TIMESTAMP(3)), bidder, price FROM bids WHERE bidder = 'Öz' AND auction = 13 AND price > 100;
END;
