-- Arrays: elements by position from 1, their number; NULL beyond the end.
CREATE TABLE sensors (id INT, tags ARRAY<STRING>)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (id INT, first_ STRING, third STRING, n INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, tags[1], tags[3], CARDINALITY(tags) FROM sensors WHERE id <> 2;
