-- Thousands of rows, many of a key, with NULLs in the values.
-- The expectation was computed by DuckDB.
CREATE TABLE bids (ts BIGINT, auction BIGINT, bidder STRING, price BIGINT, rating DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (auction BIGINT, low BIGINT, high BIGINT, rating DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT l.auction, l.price, r.price, r.rating FROM bids AS l JOIN bids AS r ON l.auction = r.auction AND l.bidder =
r.bidder AND l.price + 400 < r.price;
