-- INSERT … VALUES, with and without a column list.
CREATE TABLE `out` (id BIGINT, name STRING, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

CREATE TABLE partial (id BIGINT, name STRING, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/partial', 'format' = 'csv');

INSERT INTO `out` VALUES (1, 'one', 1.5e0), (2, 'two', CAST(NULL AS DOUBLE));

INSERT INTO partial (name, id) VALUES ('three', 3);
