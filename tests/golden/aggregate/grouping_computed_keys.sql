-- Grouping sets of computed keys, and GROUPING of them: casts, constants to fold, both. Worked out by a script.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE casts (quantity STRING, product STRING, g BIGINT, h BIGINT, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE folded (k BIGINT, g BIGINT, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE sets (k STRING, customer STRING, g BIGINT, mean BIGINT)
WITH ('connector' = 'print');

CREATE TABLE without (k STRING, n BIGINT)
WITH ('connector' = 'print');

CREATE TABLE plain (k STRING, g BIGINT, mean BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO casts
SELECT CAST(quantity AS STRING), product, GROUPING(CAST(quantity AS STRING)), GROUPING(product, CAST(quantity AS STRING)), COUNT(*)
FROM orders GROUP BY CUBE (CAST(quantity AS STRING), product);
INSERT INTO folded
SELECT quantity + (1 + 1), GROUPING(quantity + (1 + 1)), COUNT(*) FROM orders GROUP BY ROLLUP (quantity + (1 + 1));
INSERT INTO sets
SELECT 'q' || quantity, customer, GROUPING('q' || quantity, customer), AVG(id) FROM orders
GROUP BY GROUPING SETS (('q' || quantity), (customer), ()) HAVING COUNT(*) > 1;
INSERT INTO without SELECT CAST(quantity AS STRING), COUNT(*) FROM orders GROUP BY ROLLUP (CAST(quantity AS STRING));
INSERT INTO plain
SELECT CAST(quantity AS STRING), GROUPING(CAST(quantity AS STRING)), AVG(id) FROM orders GROUP BY CAST(quantity AS STRING);
END;
