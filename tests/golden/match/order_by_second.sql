-- Rows of the same time in the order of a second column; NULL would be the smallest.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE `out` (symbol STRING, a BIGINT, b BIGINT, c BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT symbol, a, b, c FROM ticks
MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY rt, price DESC, id
  MEASURES A.id AS a, B.id AS b, C.id AS c
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B C)
  DEFINE B AS B.price > A.price, C AS C.price < B.price AND C.qty > A.qty
);
