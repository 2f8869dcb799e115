-- Event time survives UNNEST.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (window_end TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

CREATE VIEW sides AS SELECT rt, x FROM (SELECT rt, ARRAY[qty, -qty] AS both FROM trades) CROSS JOIN UNNEST(both) AS t (x);

INSERT INTO `out`
SELECT window_end, COUNT(*), SUM(x) FILTER (WHERE x > 0)
FROM TABLE(TUMBLE(TABLE sides, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
