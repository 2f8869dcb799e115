-- Deduplication: the first row of each key by event time, append-only. Worked out by DuckDB.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE first_ (symbol STRING, id BIGINT, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/first_', 'format' = 'csv');

CREATE TABLE sizes (qty BIGINT, id BIGINT, rn BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/sizes', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO first_
SELECT symbol, id, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY rt) AS rn FROM trades) WHERE rn = 1;
INSERT INTO sizes
SELECT qty, id, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY qty ORDER BY rt ASC) AS rn FROM trades) WHERE rn <= 1;
END;
