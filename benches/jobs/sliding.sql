-- Sliding AVG, MIN, MAX and COUNT over a stream of a million events to the second of event time.
CREATE TABLE t (
  n BIGINT, v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(n / ${PER_MS:-1000}, 3),
  WATERMARK FOR rt AS rt
) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '${ROWS}', 'fields.v.min' = '0', 'fields.v.max' = '1000000');
CREATE TABLE s (n BIGINT, a BIGINT, low BIGINT, high BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT n, AVG(v) OVER w, MIN(v) OVER w, MAX(v) OVER w, COUNT(*) OVER w FROM t
WINDOW w AS (ORDER BY rt RANGE BETWEEN INTERVAL ${SPAN} PRECEDING AND CURRENT ROW);
