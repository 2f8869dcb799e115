-- NULL is the smallest value: first in ascending order, last in descending, unless the query says otherwise. Worked out by DuckDB.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE low (bidder STRING, rn BIGINT, price BIGINT, ts BIGINT, auction BIGINT)
WITH ('connector' = 'print');

CREATE TABLE high (bidder STRING, rn BIGINT, price BIGINT, ts BIGINT, auction BIGINT)
WITH ('connector' = 'print');

CREATE TABLE first_ (auction BIGINT, rn BIGINT, price BIGINT, ts BIGINT, bidder STRING)
WITH ('connector' = 'print');

CREATE TABLE last_ (auction BIGINT, price BIGINT, ts BIGINT, bidder STRING)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO low
SELECT bidder, rn, price, ts, auction
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY price, ts, auction) AS rn FROM bids) WHERE rn <= 3;
INSERT INTO high
SELECT bidder, rn, price, ts, auction
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY price DESC, ts, auction) AS rn FROM bids) WHERE rn <= 3;
INSERT INTO first_
SELECT auction, rn, price, ts, bidder
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC NULLS FIRST, ts, bidder) AS rn FROM bids) WHERE rn <= 2;
INSERT INTO last_
SELECT auction, price, ts, bidder
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price NULLS LAST, ts, bidder) AS rn FROM bids) WHERE rn <= 2;
END;
