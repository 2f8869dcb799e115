-- A directory of files; names that begin with _ are left alone.
CREATE TABLE parts (ts BIGINT, k STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE `out` (ts BIGINT, k STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT ts, k, v FROM parts;
