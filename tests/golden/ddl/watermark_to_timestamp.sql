-- A watermark on a computed column TO_TIMESTAMP(text).
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts STRING,
  rt AS TO_TIMESTAMP(ts),
  WATERMARK FOR rt AS rt - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (window_start TIMESTAMP(3), window_end TIMESTAMP(3), total DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, window_end, SUM(amount)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(rt), INTERVAL '20' SECOND))
GROUP BY window_start, window_end;
