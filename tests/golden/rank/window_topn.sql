-- Window Top-N over window aggregates: the two busiest symbols of each window, once. Worked out by DuckDB.
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

CREATE TABLE busy (window_start TIMESTAMP(3), window_end TIMESTAMP(3), rn BIGINT, symbol STRING, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/busy', 'format' = 'csv');

CREATE TABLE unseen (symbol STRING, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/unseen', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO busy
SELECT window_start, window_end, rn, symbol, qty
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY qty DESC, symbol) AS rn FROM volumes)
WHERE rn <= 2;
INSERT INTO unseen
SELECT symbol, n
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_end, window_start ORDER BY n, symbol) AS rn FROM volumes)
WHERE rn = 1;
END;
