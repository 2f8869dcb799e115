-- GROUPING beside AVG of whole numbers, in the SELECT list and in HAVING. Worked out by a script.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE sets (customer STRING, product STRING, g BIGINT, mean INT, last_ STRING)
WITH ('connector' = 'print');

CREATE TABLE rolled (customer STRING, g BIGINT, mean BIGINT, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE beside (product STRING, customer STRING, g BIGINT, sums BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO sets
SELECT customer, product, GROUPING(customer, product), AVG(quantity), MAX(customer) FROM orders
GROUP BY GROUPING SETS ((customer, product), (product), ()) HAVING COUNT(*) > 0;
INSERT INTO rolled
SELECT customer, GROUPING(customer), AVG(id), COUNT(*) FROM orders
GROUP BY ROLLUP (customer) HAVING AVG(id) > 6 OR GROUPING(customer) = 1;
INSERT INTO beside
SELECT product, customer, GROUPING(customer) * 10 + GROUPING(product), AVG(quantity) + SUM(id) FROM orders
GROUP BY product, GROUPING SETS ((customer), ());
END;
