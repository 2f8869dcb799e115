-- Orders above 100 go one way, lines that are no orders go another: nothing is lost in silence.

CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  ordered TIMESTAMP(3),
  amount DOUBLE
) WITH (
  'connector' = 'filesystem',
  'path' = 'examples/dead-letter/orders.csv',
  'format' = 'csv',
  'on-error' = 'dead-letter',
  'dead-letter' = 'unreadable'
);

CREATE TABLE unreadable (place STRING, reason STRING, raw STRING)
WITH ('connector' = 'print', 'print-identifier' = 'unreadable');

CREATE TABLE large_orders (id BIGINT, customer STRING, amount DOUBLE)
WITH ('connector' = 'print', 'print-identifier' = 'large');

INSERT INTO large_orders
SELECT id, customer, amount FROM orders WHERE amount > 100;
