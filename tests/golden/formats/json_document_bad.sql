-- Bad objects of a JSON document, one without its bracket and one without its quote among them, are skipped, and no others.
-- flink: no
CREATE TABLE bad (id BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/document_bad.json', 'format' = 'json', 'json.form' = 'auto', 'on-error' = 'skip');

CREATE TABLE `out` (id BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, n FROM bad;
