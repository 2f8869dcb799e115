-- PREV and NEXT: rows of the partition before and behind, in the match or not.
-- flink: no
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (symbol STRING, id BIGINT, before_id BIGINT, two_before BIGINT, behind_id BIGINT, behind_last BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, id, before_id, two_before, behind_id, behind_last FROM trades
MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY rt
  MEASURES A.id AS id, PREV(A.id) AS before_id, PREV(A.id, 2) AS two_before, NEXT(A.id) AS behind_id, NEXT(id, 2) AS behind_last
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B)
  DEFINE A AS A.price > PREV(A.price) AND price > NEXT(price), B AS B.qty < PREV(qty, 2)
);
