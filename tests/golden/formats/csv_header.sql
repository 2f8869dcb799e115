-- A header line whose names are checked, and one that is skipped whatever it says.
-- flink: no
CREATE TABLE checked (id INT, name STRING, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/header.csv', 'format' = 'csv', 'csv.header' = 'true');

CREATE TABLE skipped (a INT, b STRING, c DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/header.csv', 'format' = 'csv', 'csv.header' = 'skip');

CREATE TABLE out_checked (id INT, name STRING, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out_checked', 'format' = 'csv');

CREATE TABLE out_skipped (a INT, b STRING, c DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out_skipped', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO out_checked SELECT id, name, price FROM checked;
INSERT INTO out_skipped SELECT a, b, c FROM skipped WHERE c > 2;
END;
