-- Elements are grouped.
CREATE TABLE sensors (id INT, tags ARRAY<STRING>)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (letters BIGINT, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT CHAR_LENGTH(tag), COUNT(*) FROM sensors CROSS JOIN UNNEST(tags) AS t (tag) GROUP BY CHAR_LENGTH(tag);
