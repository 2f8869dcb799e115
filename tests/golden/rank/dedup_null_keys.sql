-- NULL is a key like any other, alone and beside another. Worked out by DuckDB.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE first_ (price BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/first_', 'format' = 'csv');

CREATE TABLE last_ (bidder STRING, rating DOUBLE, ts BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO first_
SELECT price, ts
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY price ORDER BY rt) AS rn FROM bids WHERE price IS NULL OR price > 300)
WHERE rn = 1;
INSERT INTO last_
SELECT bidder, rating, ts
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, rating ORDER BY rt DESC) AS rn FROM bids WHERE rating IS NULL OR rating > 90)
WHERE rn = 1;
END;
