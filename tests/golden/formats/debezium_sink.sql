-- Changes written as Debezium writes them: an update is a deletion and an insert.
-- batch: no
CREATE TABLE accounts (id BIGINT, region STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/accounts.debezium.jsonl', 'format' = 'debezium-json');

CREATE TABLE `out` (id BIGINT, region STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'debezium-json');

INSERT INTO `out` SELECT id, region, amount FROM accounts;
