-- A report over files that lie still: a join, a sort and a limit.

SET 'execution.runtime-mode' = 'batch';

CREATE TABLE orders (id BIGINT, customer STRING, ordered TIMESTAMP(3), amount DOUBLE)
WITH (
  'connector' = 'filesystem',
  'path' = 'examples/dead-letter/orders.csv',
  'format' = 'csv',
  'on-error' = 'skip'
);

CREATE TABLE customers (name STRING, city STRING)
WITH ('connector' = 'filesystem', 'path' = 'examples/batch-report/customers.csv', 'format' = 'csv', 'csv.header' = 'true');

SELECT c.city, COUNT(*) AS orders, SUM(o.amount) AS amount
FROM orders AS o JOIN customers AS c ON o.customer = c.name
GROUP BY c.city
ORDER BY amount DESC
LIMIT 10;
