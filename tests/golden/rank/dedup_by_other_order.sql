-- One row a key by an order that begins with event time and goes on. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE first_ (symbol STRING, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE last_ (symbol STRING, id BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO first_
SELECT symbol, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY rt, id) AS rn FROM ticks) WHERE rn = 1;
INSERT INTO last_
SELECT symbol, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY rt DESC, id DESC) AS rn FROM ticks) WHERE rn = 1;
END;
