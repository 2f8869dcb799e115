-- A JSON document: an array of objects over several lines, several of them in one.
-- flink: no
CREATE TABLE places (id INT, name STRING, place ROW<city STRING, level INT>)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/document.json', 'format' = 'json', 'json.form' = 'document');

CREATE TABLE `out` (id INT, name STRING, city STRING, level INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT id, name, p.place.city, p.place.level FROM places AS p;
