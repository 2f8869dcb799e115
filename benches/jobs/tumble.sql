-- Keyed: sums over 10,000 keys in windows of ten seconds, a million events to the second.
CREATE TABLE t (
  n BIGINT, k BIGINT, v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(n / 1000, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '${ROWS}', 'fields.k.min' = '0', 'fields.k.max' = '9999', 'fields.v.min' = '0', 'fields.v.max' = '100');
CREATE TABLE s (k BIGINT, window_end TIMESTAMP(3), total BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT k, window_end, SUM(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(rt), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end;
