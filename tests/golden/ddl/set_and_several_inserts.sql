-- SET in front, and several INSERTs in one file: each writes its own sink.
SET 'parallelism.default' = '1';
SET 'table.local-time-zone' = 'UTC';

CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE largest (id BIGINT, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/largest', 'format' = 'csv');

CREATE TABLE by_region (region STRING, n BIGINT)
WITH ('connector' = 'print');

INSERT INTO largest SELECT id, amount FROM payments WHERE amount >= 190;

INSERT INTO by_region SELECT region, COUNT(*) FROM payments GROUP BY region;
