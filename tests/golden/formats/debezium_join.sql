-- Changes joined with what they add up to: both sides are updated.
CREATE TABLE accounts (id BIGINT, region STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/accounts.debezium.jsonl', 'format' = 'debezium-json');

CREATE TABLE `out` (id BIGINT, region STRING, accounts BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT a.id, a.region, r.accounts
FROM accounts AS a JOIN (SELECT region, COUNT(*) AS accounts FROM accounts GROUP BY region) AS r ON a.region = r.region;
