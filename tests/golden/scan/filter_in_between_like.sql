-- IN, NOT IN, BETWEEN, LIKE with both wildcards and an escape, all with NULLs about.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (what STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT 'in', id FROM orders WHERE customer IN ('alice', 'dave')
UNION ALL
SELECT 'not in', id FROM orders WHERE customer NOT IN ('alice', 'dave')
UNION ALL
SELECT 'in with null', id FROM orders WHERE quantity IN (1, 10, CAST(NULL AS INT))
UNION ALL
SELECT 'not in with null', id FROM orders WHERE quantity NOT IN (1, 10, CAST(NULL AS INT))
UNION ALL
SELECT 'between', id FROM orders WHERE amount BETWEEN 3.25 AND 4.5
UNION ALL
SELECT 'not between', id FROM orders WHERE quantity NOT BETWEEN 1 AND 4
UNION ALL
SELECT 'like', n FROM texts WHERE s LIKE '%a%'
UNION ALL
SELECT 'like one character', n FROM texts WHERE t LIKE '_'
UNION ALL
SELECT 'not like', n FROM texts WHERE s NOT LIKE '%e%'
UNION ALL
SELECT 'starts with', n FROM texts WHERE s LIKE 'Gr%'
UNION ALL
SELECT 'escape', n FROM texts WHERE s || '_%' LIKE '%Wor__!_!%' ESCAPE '!';
