-- Nested objects as ROW, reached with dots; NULL where an outer object is missing.
CREATE TABLE sensors (id INT, device ROW<name STRING, place ROW<city STRING, floor_ INT, `floor` INT>>)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (id INT, name STRING, city STRING, `floor` INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, s.device.name, s.device.place.city, s.device.place.`floor` + 1 FROM sensors AS s;
