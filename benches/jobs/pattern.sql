-- A, then B within 10 s, over 100,000 keys and a million rows to the second; one row in 100 is an A.
CREATE TABLE t (
  n BIGINT, k BIGINT, v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(n / 1000, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '${ROWS}', 'fields.k.min' = '0', 'fields.k.max' = '99999', 'fields.v.min' = '0', 'fields.v.max' = '99');
CREATE TABLE s (k BIGINT, a BIGINT, b BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT k, a, b FROM t MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY rt MEASURES A.n AS a, B.n AS b ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A X*? B) WITHIN INTERVAL '10' SECOND DEFINE A AS A.v = 0, B AS B.v = 1);
