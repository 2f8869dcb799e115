-- Changes of a database read as Debezium writes them: inserts, updates, deletions.
CREATE TABLE accounts (id BIGINT, region STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/accounts.debezium.jsonl', 'format' = 'debezium-json');

CREATE TABLE `out` (id BIGINT, region STRING, amount BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT id, region, amount FROM accounts;
