-- A full join of two updating inputs on a key that is itself updated.
-- The expectation was computed by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE bids (ts BIGINT, auction BIGINT, bidder STRING, price BIGINT, rating DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n BIGINT, account STRING, auction BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT COALESCE(a.n, b.n), a.account, b.auction FROM (SELECT account, COUNT(*) AS n FROM payments GROUP BY account) AS
a FULL JOIN (SELECT auction, COUNT(*) / 2 AS n FROM bids GROUP BY auction) AS b ON a.n = b.n;
