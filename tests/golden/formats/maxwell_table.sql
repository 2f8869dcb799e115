-- Changes of a database read as Maxwell writes them: of an updated row only the columns that changed are told.
CREATE TABLE accounts (id BIGINT, region STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/accounts.maxwell.jsonl', 'format' = 'maxwell-json');

CREATE TABLE `out` (id BIGINT, region STRING, amount BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT id, region, amount FROM accounts;
