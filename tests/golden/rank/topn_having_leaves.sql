-- Rows leave the input altogether, and others move up. Worked out by DuckDB.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE best (rn BIGINT, account STRING, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO best
SELECT rn, account, total
FROM (
  SELECT *, ROW_NUMBER() OVER (ORDER BY total DESC, account) AS rn
  FROM (SELECT account, SUM(amount) AS total FROM payments GROUP BY account HAVING COUNT(*) % 2 = 1))
WHERE rn <= 3;
