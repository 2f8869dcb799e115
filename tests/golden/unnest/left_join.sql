-- A row without elements stays, with NULL.
CREATE TABLE sensors (id INT, tags ARRAY<STRING>)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (id INT, tag STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, tag FROM sensors LEFT JOIN UNNEST(tags) AS t (tag) ON TRUE;
