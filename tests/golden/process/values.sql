-- Functions of values that are processes: nested, twice the same, with NULLs, in WHERE beside what needs no call.
-- flink: no
CREATE FUNCTION twice (n BIGINT) RETURNS BIGINT LANGUAGE PROCESS AS '"${TIDEMILL}" function double' WITH ('batch.rows' = '3');
CREATE FUNCTION loud (t STRING) RETURNS STRING LANGUAGE PROCESS AS '"${TIDEMILL}" function upper' WITH ('processes' = '2', 'batch.rows' = '2');

CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, customer STRING, product STRING, quantity BIGINT, eight BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, loud(customer), loud(product), twice(quantity), twice(twice(twice(id)))
FROM orders WHERE twice(id) > 4 AND product <> 'cake' AND loud(product) <> 'SOUP';
