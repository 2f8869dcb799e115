-- GROUPING beside AVG of whole numbers in windows, a cast key there, and an average of GROUPING. Worked out by a script.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE rolled (window_start TIMESTAMP(3), symbol STRING, g BIGINT, mean BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/rolled', 'format' = 'csv');

CREATE TABLE computed (window_start TIMESTAMP(3), k STRING, g BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/computed', 'format' = 'csv');

CREATE TABLE over_ (window_start TIMESTAMP(3), symbol STRING, mean BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/over_', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO rolled
SELECT window_start, symbol, GROUPING(symbol), AVG(qty)
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, ROLLUP (symbol);
INSERT INTO computed
SELECT window_start, CAST(id % 2 AS STRING), GROUPING(CAST(id % 2 AS STRING)), COUNT(*)
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, GROUPING SETS ((CAST(id % 2 AS STRING)), ());
INSERT INTO over_
SELECT window_start, symbol, AVG(GROUPING(symbol)) OVER (PARTITION BY symbol ORDER BY window_time), COUNT(*)
FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, window_time, ROLLUP (symbol);
END;
