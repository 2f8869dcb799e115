-- UNION ALL of three inputs with names of the first.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE `out` (what STRING, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT what, n FROM (
  SELECT 'payment' AS what, amount AS n FROM payments WHERE amount < -45
  UNION ALL
  SELECT k, v FROM parts WHERE v > 95
  UNION ALL
  SELECT 'constant', CAST(7 AS BIGINT)
);
