-- A glob that matches two of three files.
-- flink: no
CREATE TABLE parts (ts BIGINT, k STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts/part-[02].csv', 'format' = 'csv');

CREATE TABLE `out` (ts BIGINT, k STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT ts, k, v FROM parts WHERE k <> 'z';
