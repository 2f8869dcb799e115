-- A pattern over a view, its result in another view, filtered and computed with.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE VIEW large AS SELECT symbol, price, qty, id, rt FROM trades WHERE qty > 20;

CREATE VIEW jumps (what, gain, ids) AS
SELECT symbol, up - down, CAST(a AS STRING) || '-' || CAST(b AS STRING) FROM large
MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY rt
  MEASURES A.price AS down, B.price AS up, A.id AS a, B.id AS b
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B)
  DEFINE B AS B.price > A.price + 10
);

CREATE TABLE `out` (what STRING, gain DOUBLE, ids STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT what, gain, ids FROM jumps WHERE gain > 30 AND what <> 'CCC';
