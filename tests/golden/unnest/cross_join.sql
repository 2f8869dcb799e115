-- A row for each element; none for an empty array or NULL.
CREATE TABLE sensors (id INT, tags ARRAY<STRING>)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (id INT, tag STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, tag FROM sensors CROSS JOIN UNNEST(tags) AS t (tag);
