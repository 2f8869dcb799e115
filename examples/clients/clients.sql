-- Orders come from clients. Each customer's sum is a view that clients may look at and follow; large orders are
-- a stream of which each subscriber gets every row once.
--
--   tidemill serve examples/clients/clients.sql --state-dir state

SET 'execution.checkpointing.interval' = '1 s';

-- Read by the job: clients publish into it.
CREATE TABLE orders (
  id BIGINT NOT NULL,
  customer STRING,
  amount DOUBLE
) WITH (
  'connector' = 'stream'
);

-- A view is a stream, too. This one is updated, so its contents are kept: a subscriber may begin with them.
CREATE VIEW per_customer AS
SELECT customer, COUNT(*) AS orders, SUM(amount) AS amount
FROM orders
GROUP BY customer;

-- Written by the job: clients subscribe to it. Its rows are kept in a log, numbered.
CREATE TABLE large_orders (
  id BIGINT NOT NULL,
  customer STRING,
  amount DOUBLE
) WITH (
  'connector' = 'stream',
  'stream.delivery' = 'exactly-once'
);

INSERT INTO large_orders SELECT id, customer, amount FROM orders WHERE amount >= 100;
