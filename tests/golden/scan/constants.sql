-- Constants and constant expressions next to columns.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (
  id BIGINT,
  number_ INT,
  word STRING,
  nothing STRING,
  half DOUBLE,
  yes_ BOOLEAN,
  day_one DATE,
  at_noon TIMESTAMP(3)
)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT id, 1, 'it''s', CAST(NULL AS STRING), CAST(0.5 AS DOUBLE), 1 < 2, DATE '2024-02-29', TIMESTAMP '2024-02-29 12:00:00.250'
FROM orders WHERE id IN (1, 2);
