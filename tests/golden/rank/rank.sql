-- RANK and DENSE_RANK: ticks of one size share a rank. Worked out by DuckDB.
-- flink: no
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE ranks (symbol STRING, rn BIGINT, id BIGINT, qty BIGINT)
WITH ('connector' = 'print');

CREATE TABLE dense (symbol STRING, rn BIGINT, id BIGINT, qty BIGINT)
WITH ('connector' = 'print');

CREATE TABLE unseen (symbol STRING, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE second_ (id BIGINT, qty BIGINT, rn BIGINT)
WITH ('connector' = 'print');

CREATE TABLE gaps (id BIGINT, rn BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO ranks
SELECT symbol, rn, id, qty FROM (SELECT *, RANK() OVER (PARTITION BY symbol ORDER BY qty DESC) AS rn FROM ticks) WHERE rn <= 4;
INSERT INTO dense
SELECT symbol, rn, id, qty FROM (SELECT *, DENSE_RANK() OVER (PARTITION BY symbol ORDER BY qty DESC) AS rn FROM ticks) WHERE rn <= 3;
INSERT INTO unseen
SELECT symbol, id FROM (SELECT *, RANK() OVER (PARTITION BY symbol ORDER BY qty) AS rn FROM ticks) WHERE rn = 1;
INSERT INTO second_
SELECT id, qty, rn FROM (SELECT *, DENSE_RANK() OVER (ORDER BY qty) AS rn FROM ticks) WHERE rn BETWEEN 2 AND 3;
INSERT INTO gaps
SELECT id, rn FROM (SELECT *, RANK() OVER (ORDER BY qty) AS rn FROM ticks) WHERE rn BETWEEN 2 AND 20;
END;
