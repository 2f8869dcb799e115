-- GROUPING SETS in windows: each window once, append-only. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE sets (window_start TIMESTAMP(3), symbol STRING, odd BIGINT, n BIGINT, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/sets', 'format' = 'csv');

CREATE TABLE rolled (window_start TIMESTAMP(3), window_end TIMESTAMP(3), symbol STRING, g BIGINT, best DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/rolled', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO sets
SELECT window_start, symbol, id % 2, COUNT(*), SUM(qty)
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, GROUPING SETS ((symbol), (id % 2), ());
INSERT INTO rolled
SELECT window_start, window_end, symbol, GROUPING(symbol), MAX(price)
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, ROLLUP (symbol);
END;
