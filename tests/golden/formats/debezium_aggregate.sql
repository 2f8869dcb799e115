-- A running aggregate over changes: rows that are updated move from group to group, a group without rows is gone.
CREATE TABLE accounts (id BIGINT, region STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/accounts.debezium.jsonl', 'format' = 'debezium-json');

CREATE TABLE `out` (region STRING, accounts BIGINT, amount BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT region, COUNT(*), SUM(amount) FROM accounts GROUP BY region;
