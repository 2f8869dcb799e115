-- JSON lines written: NULLs, doubles, timestamps, escaped texts.
CREATE TABLE sensors (id INT, device ROW<name STRING>, temp DOUBLE, ok BOOLEAN, ts TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (id INT, name STRING, temp DOUBLE, ok BOOLEAN, ts TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'json');

INSERT INTO `out` SELECT id, s.device.name, temp, ok, ts FROM sensors AS s;
