-- Aggregates in DEFINE see the rows so far, the one that is tried among them.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (symbol STRING, first_id BIGINT, last_id BIGINT, n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, first_id, last_id, n, total FROM trades
MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY rt
  MEASURES FIRST(A.id) AS first_id, LAST(A.id) AS last_id, COUNT(A.id) AS n, SUM(A.qty) AS total
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A+ B)
  DEFINE A AS SUM(A.qty) < 150 AND A.price < AVG(A.price) * 1.5, B AS B.price > MIN(A.price)
);
