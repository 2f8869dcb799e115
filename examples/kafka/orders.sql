-- Orders come by one topic. What each customer has ordered so far goes into a second one, by customer, so that compaction leaves the
-- latest total of each; large orders go into a third, each exactly once: they become visible with the checkpoint that holds them.

CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  amount BIGINT
) WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = '${SERVERS:-localhost:9092}',
  'topic' = 'orders',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = '${UNTIL:-unbounded}',
  'format' = 'json'
);

CREATE TABLE totals (
  customer STRING,
  total BIGINT,
  PRIMARY KEY (customer) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'properties.bootstrap.servers' = '${SERVERS:-localhost:9092}',
  'topic' = 'totals',
  'key.format' = 'raw',
  'value.format' = 'json'
);

CREATE TABLE large_orders (
  id BIGINT,
  customer STRING,
  amount BIGINT
) WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = '${SERVERS:-localhost:9092}',
  'topic' = 'large-orders',
  'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = 'large-orders'
);

INSERT INTO totals
SELECT customer, SUM(amount) FROM orders GROUP BY customer;

INSERT INTO large_orders
SELECT id, customer, amount FROM orders WHERE amount >= 40;
