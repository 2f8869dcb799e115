-- Lines that are no JSON, or have a text where a number is wanted, are skipped.
-- flink: no
CREATE TABLE bad (id BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/bad.jsonl', 'format' = 'json', 'on-error' = 'skip');

CREATE TABLE `out` (id BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, n FROM bad;
