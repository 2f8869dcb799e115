-- RANK and DENSE_RANK in windows. Worked out by DuckDB.
-- flink: no
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW volumes AS
SELECT symbol, window_start, window_end, window_time, SUM(qty) AS qty, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY symbol, window_start, window_end, window_time;

CREATE TABLE ranks (window_start TIMESTAMP(3), rn BIGINT, id BIGINT, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/ranks', 'format' = 'csv');

CREATE TABLE dense (window_start TIMESTAMP(3), rn BIGINT, symbol STRING, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/dense', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO ranks
SELECT window_start, rn, id, qty
FROM (
  SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY qty DESC) AS rn
  FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND)))
WHERE rn <= 3;
INSERT INTO dense
SELECT window_start, rn, symbol, n
FROM (SELECT *, DENSE_RANK() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS rn FROM volumes)
WHERE rn <= 2;
END;
