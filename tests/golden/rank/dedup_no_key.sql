-- The first and the last row of all. Worked out by DuckDB.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE first_ (id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/first_', 'format' = 'csv');

CREATE TABLE last_ (id BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO first_
SELECT id FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY rt) AS rn FROM trades) WHERE rn = 1;
INSERT INTO last_
SELECT id FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY rt DESC) AS rn FROM trades) WHERE rn = 1;
END;
