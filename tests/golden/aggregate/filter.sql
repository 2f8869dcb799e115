-- Aggregates with FILTER (WHERE …), also with DISTINCT; a filter nothing passes.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, n BIGINT, credits BIGINT, debits BIGINT, accounts BIGINT, never_ BIGINT, nulls_ BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, COUNT(*), SUM(amount) FILTER (WHERE amount > 0), SUM(amount) FILTER (WHERE amount < 0),
  COUNT(DISTINCT account) FILTER (WHERE amount > 150), SUM(amount) FILTER (WHERE amount > 100000), COUNT(*) FILTER (WHERE amount IS NULL)
FROM payments GROUP BY region;
