-- The number of an element beside it.
CREATE TABLE sensors (id INT, tags ARRAY<STRING>)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (id INT, tag STRING, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, tag, n FROM sensors CROSS JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, n) WHERE n < 3;
