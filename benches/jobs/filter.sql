-- Stateless: (BIGINT, FLOAT) from memory, half of it filtered away.
CREATE TABLE t (k BIGINT, v FLOAT)
WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}', 'fields.k.min' = '0', 'fields.k.max' = '1000000', 'fields.v.min' = '0', 'fields.v.max' = '1');
CREATE TABLE s (k BIGINT, v FLOAT) WITH ('connector' = 'blackhole');
INSERT INTO s SELECT k, v FROM t WHERE v <= 0.5;
