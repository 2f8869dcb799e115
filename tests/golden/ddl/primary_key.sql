-- A primary key, NOT ENFORCED, on a source and on a sink whose query has that upsert key.
CREATE TABLE payments (
  id BIGINT,
  region STRING,
  account STRING,
  amount BIGINT,
  PRIMARY KEY (id) NOT ENFORCED
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE balances (region STRING, account STRING, balance BIGINT, PRIMARY KEY (region, account) NOT ENFORCED)
WITH ('connector' = 'print');

INSERT INTO balances SELECT region, account, SUM(amount) FROM payments GROUP BY region, account;
