-- Running GROUP BY: ten million keys, folded by the sink.
CREATE TABLE t (n BIGINT, v BIGINT)
WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}', 'fields.n.min' = '0', 'fields.n.max' = '9999999', 'fields.v.min' = '0', 'fields.v.max' = '100');
CREATE TABLE s (n BIGINT, c BIGINT, total BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT n, COUNT(*), SUM(v) FROM t GROUP BY n;
