-- Conditions beside the rank: on the key they hold before it, on other columns after it. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW ranked AS
SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS rn FROM ticks;

CREATE TABLE after_ (symbol STRING, id BIGINT, price DOUBLE)
WITH ('connector' = 'print');

CREATE TABLE key_ (rn BIGINT, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE odd (symbol STRING, rn BIGINT, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE before_ (symbol STRING, id BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO after_
SELECT symbol, id, price FROM ranked WHERE rn <= 10 AND qty > 30;
INSERT INTO key_
SELECT rn, id FROM ranked WHERE rn <= 5 AND symbol = 'AAA';
INSERT INTO odd
SELECT symbol, rn, id FROM ranked WHERE rn <= 6 AND rn % 2 = 1;
INSERT INTO before_
SELECT symbol, id
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS rn FROM ticks WHERE qty < 50) WHERE rn <= 2;
END;
