-- Window deduplication: the first and the last row of each key in each window. Worked out by DuckDB.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE first_ (window_start TIMESTAMP(3), symbol STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/first_', 'format' = 'csv');

CREATE TABLE last_ (window_start TIMESTAMP(3), symbol STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/last_', 'format' = 'csv');

CREATE TABLE newest (window_end TIMESTAMP(3), id BIGINT, rn BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/newest', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO first_
SELECT window_start, symbol, id
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, symbol ORDER BY rt) AS rn
  FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(rt), INTERVAL '5' SECOND)))
WHERE rn = 1;
INSERT INTO last_
SELECT window_start, symbol, id
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, symbol ORDER BY rt DESC) AS rn
  FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(rt), INTERVAL '5' SECOND)))
WHERE rn = 1;
INSERT INTO newest
SELECT window_end, id, rn
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY rt DESC) AS rn
  FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(rt), INTERVAL '5' SECOND)))
WHERE rn = 1;
END;
