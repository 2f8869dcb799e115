-- Records that cannot be read are skipped, their neighbours are not harmed.
-- flink: no
CREATE TABLE bad (id BIGINT, v BIGINT, note STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/bad.csv', 'format' = 'csv', 'on-error' = 'skip');

CREATE TABLE `out` (id BIGINT, v BIGINT, note STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, v, note FROM bad;
