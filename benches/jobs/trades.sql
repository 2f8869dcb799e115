-- Generated trades as CSV, in the layout that examples/vwap reads.
CREATE TABLE t (symbol STRING, `time` TIMESTAMP(3), price DOUBLE, size BIGINT, exchange STRING)
WITH ('connector' = 'datagen', 'generator' = 'trades', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}');
CREATE TABLE f (symbol STRING, `time` TIMESTAMP(3), price DOUBLE, size BIGINT, exchange STRING, sale_condition STRING, suspicious INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'csv');
INSERT INTO f SELECT symbol, `time`, price, size, exchange, '0', 0 FROM t;
