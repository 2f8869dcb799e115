-- JSON lines: fields by name in any order, missing ones and null are NULL, unknown ones ignored.
CREATE TABLE sensors (id INT, temp DOUBLE, ok BOOLEAN, ts TIMESTAMP(3), missing STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (id INT, temp DOUBLE, ok BOOLEAN, ts TIMESTAMP(3), missing STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, temp, ok, ts, missing FROM sensors;
