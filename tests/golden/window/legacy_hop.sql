-- The older form of HOP: slide first, then size.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (ws TIMESTAMP(3), we TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT HOP_START(ts, INTERVAL '10' SECOND, INTERVAL '20' SECOND), HOP_END(ts, INTERVAL '10' SECOND, INTERVAL '20' SECOND), COUNT(*)
FROM orders GROUP BY HOP(ts, INTERVAL '10' SECOND, INTERVAL '20' SECOND);
