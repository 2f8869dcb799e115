-- How print shows timestamps, dates and times: without seconds where they are zero, fractions in threes.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  product STRING,
  amount DOUBLE,
  quantity INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, a TIMESTAMP(3), b TIMESTAMP(3), c DATE, d TIMESTAMP_LTZ(3))
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT id, ts, FLOOR(ts TO MINUTE), CAST(ts AS DATE), TO_TIMESTAMP_LTZ(id * 500, 3) FROM orders WHERE id >= 7;
