-- CAST between numbers, texts, booleans and timestamps.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, a INT, b STRING, c DOUBLE, d STRING, e BIGINT, f STRING, g DATE, h BOOLEAN, i DECIMAL(10, 2))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, CAST(amount AS INT), CAST(amount AS STRING), CAST(quantity AS DOUBLE), CAST(quantity > 1 AS STRING), CAST('  42 ' AS BIGINT),
  CAST(ts AS STRING), CAST(ts AS DATE), CAST('true' AS BOOLEAN), CAST(amount AS DECIMAL(10, 2))
FROM orders;
