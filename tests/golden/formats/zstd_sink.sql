-- Compressed output: CSV and JSON. A second job reads both back, as they are.
-- flink: no
SET 'table.dml-sync' = 'true';

CREATE TABLE orders (id BIGINT, customer STRING, product STRING, amount DOUBLE, quantity INT, ts TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE packed_csv (id BIGINT, ts TIMESTAMP(3), amount DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/packed_csv', 'format' = 'csv', 'compression' = 'zstd');

CREATE TABLE packed_json (id BIGINT, ts TIMESTAMP(3), amount DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/packed_json', 'format' = 'json', 'compression' = 'zstd');

CREATE TABLE out_csv (id BIGINT, ts TIMESTAMP(3), amount DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out_csv', 'format' = 'csv');

CREATE TABLE out_json (id BIGINT, ts TIMESTAMP(3), amount DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out_json', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO packed_csv SELECT id, ts, amount FROM orders;
INSERT INTO packed_json SELECT id, ts, amount FROM orders;
END;

EXECUTE STATEMENT SET BEGIN
INSERT INTO out_csv SELECT id, ts, amount FROM packed_csv;
INSERT INTO out_json SELECT id, ts, amount FROM packed_json;
END;
