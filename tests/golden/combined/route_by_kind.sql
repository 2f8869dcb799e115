-- One stream routed into three sinks by kind, with defaults for what is missing.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TEMPORARY VIEW checked AS
SELECT id, COALESCE(customer, 'unknown') AS customer, product, amount * quantity AS cost, ts FROM orders;

CREATE TABLE sold (id BIGINT, customer STRING, cost DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/sold', 'format' = 'csv');

CREATE TABLE returned (id BIGINT, customer STRING, cost DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/returned', 'format' = 'csv');

CREATE TABLE incomplete (id BIGINT, customer STRING, product STRING, ts TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/incomplete', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO sold SELECT id, customer, cost FROM checked WHERE cost >= 0;
INSERT INTO returned SELECT id, customer, -cost FROM checked WHERE cost < 0;
INSERT INTO incomplete SELECT id, customer, product, ts FROM checked WHERE cost IS NULL;
END;
