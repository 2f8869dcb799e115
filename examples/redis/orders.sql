-- Orders come as entries of a stream of Redis, each column a field; those above 100 go on into another stream. What is no
-- order is printed. With a state directory (--state-dir) a job that is started again goes on behind the last order it has read.
--
--   redis-cli XADD orders '*' id 1 customer anna amount 120.5

CREATE TABLE orders (
  id BIGINT NOT NULL,
  customer STRING,
  amount DOUBLE,
  entry STRING METADATA FROM 'id' VIRTUAL
) WITH (
  'connector' = 'redis-streams',
  'url' = '${REDIS:-redis://localhost:6379}',
  'stream' = 'orders',
  'scan.bounded.mode' = '${UNTIL:-unbounded}',
  'on-error' = 'dead-letter',
  'dead-letter' = 'unreadable'
);

CREATE TABLE unreadable (place STRING, reason STRING, raw STRING)
WITH ('connector' = 'print', 'print-identifier' = 'unreadable');

CREATE TABLE large_orders (id BIGINT, customer STRING, amount DOUBLE, entry STRING)
WITH (
  'connector' = 'redis-streams',
  'url' = '${REDIS:-redis://localhost:6379}',
  'stream' = 'large-orders',
  'sink.max-length' = '100000'
);

INSERT INTO large_orders
SELECT id, customer, amount, entry FROM orders WHERE amount > 100;
