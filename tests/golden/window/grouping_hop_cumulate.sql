-- CUBE and ROLLUP in windows that overlap. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE hops (window_start TIMESTAMP(3), symbol STRING, odd BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/hops', 'format' = 'csv');

CREATE TABLE steps (window_start TIMESTAMP(3), window_end TIMESTAMP(3), symbol STRING, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/steps', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO hops
SELECT window_start, symbol, id % 2, COUNT(*)
FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end, CUBE (symbol, id % 2);
INSERT INTO steps
SELECT window_start, window_end, symbol, SUM(qty)
FROM TABLE(CUMULATE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '20' SECOND))
GROUP BY window_start, window_end, ROLLUP (symbol);
END;
