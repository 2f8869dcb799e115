-- Window Top-N in windows that overlap: over aggregates of HOP, over rows of HOP and of CUMULATE. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE hops (window_start TIMESTAMP(3), rn BIGINT, symbol STRING, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/hops', 'format' = 'csv');

CREATE TABLE hop_rows (window_start TIMESTAMP(3), id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/hop_rows', 'format' = 'csv');

CREATE TABLE cumulated (window_start TIMESTAMP(3), window_end TIMESTAMP(3), symbol STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/cumulated', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO hops
SELECT window_start, rn, symbol, qty
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY qty DESC, symbol) AS rn
  FROM (
    SELECT symbol, window_start, window_end, SUM(qty) AS qty
    FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
    GROUP BY symbol, window_start, window_end))
WHERE rn <= 2;
INSERT INTO hop_rows
SELECT window_start, id
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC, id) AS rn
  FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '10' SECOND)))
WHERE rn <= 2;
INSERT INTO cumulated
SELECT window_start, window_end, symbol, id
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, symbol ORDER BY price DESC, id) AS rn
  FROM TABLE(CUMULATE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '20' SECOND)))
WHERE rn = 1;
END;
