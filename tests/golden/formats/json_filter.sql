-- A filter on a nested field and an aggregate over nested keys.
CREATE TABLE sensors (id INT, device ROW<name STRING, place ROW<city STRING, `floor` INT>>, temp DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (upstairs BOOLEAN, n BIGINT, warmest DOUBLE)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT s.device.place.`floor` > 0, COUNT(*), MAX(temp) FROM sensors AS s WHERE s.device.name IS NOT NULL GROUP BY s.device.place.`floor` > 0;
