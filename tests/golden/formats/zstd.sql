-- Compressed input, known by its extension: CSV in two frames and JSON.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, amount DOUBLE, quantity INT, ts TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv.zst', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE sensors (id INT, temp DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl.zst', 'format' = 'json');

CREATE TABLE out_csv (id BIGINT, ts TIMESTAMP(3), amount DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out_csv', 'format' = 'csv');

CREATE TABLE out_json (id INT, temp DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out_json', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO out_csv SELECT id, ts, amount FROM orders;
INSERT INTO out_json SELECT id, temp FROM sensors;
END;
