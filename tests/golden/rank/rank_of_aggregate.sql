-- RANK and DENSE_RANK of counts that change, many of them the same. Worked out by DuckDB.
-- flink: no
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TEMPORARY VIEW counts AS SELECT bidder, auction, COUNT(*) AS n FROM bids GROUP BY bidder, auction;

CREATE TABLE ranks (rn BIGINT, bidder STRING, auction BIGINT, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE dense (auction BIGINT, bidder STRING, n BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO ranks
SELECT rn, bidder, auction, n FROM (SELECT *, RANK() OVER (ORDER BY n DESC) AS rn FROM counts) WHERE rn <= 6;
INSERT INTO dense
SELECT auction, bidder, n FROM (SELECT *, DENSE_RANK() OVER (PARTITION BY auction ORDER BY n DESC) AS rn FROM counts) WHERE rn <= 2;
END;
