-- After a window Top-N the windows go on: aggregates in the same windows, and in longer ones by window_time. Worked out by DuckDB.
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

CREATE TEMPORARY VIEW best AS
SELECT window_start, window_end, window_time, qty
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY qty DESC, symbol) AS rn FROM volumes)
WHERE rn <= 2;

CREATE TEMPORARY VIEW later AS SELECT window_time AS wt, qty FROM best;

CREATE TABLE sums (window_start TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/sums', 'format' = 'csv');

CREATE TABLE longer (window_start TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/longer', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO sums
SELECT window_start, COUNT(*), SUM(qty) FROM best GROUP BY window_start, window_end;
INSERT INTO longer
SELECT window_start, COUNT(*), SUM(qty)
FROM TABLE(TUMBLE(TABLE later, DESCRIPTOR(wt), INTERVAL '30' SECOND)) GROUP BY window_start, window_end;
END;
