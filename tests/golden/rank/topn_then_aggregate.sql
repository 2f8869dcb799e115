-- Aggregates of a Top-N take rows back when others take their place. Worked out by DuckDB.
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

CREATE TABLE sums (symbol STRING, n BIGINT, total DOUBLE, low DOUBLE)
WITH ('connector' = 'print');

CREATE TABLE weighted (total BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO sums
SELECT symbol, COUNT(*), SUM(price), MIN(price) FROM ranked WHERE rn <= 5 GROUP BY symbol;
INSERT INTO weighted
SELECT SUM(rn * qty) FROM ranked WHERE rn <= 5;
END;
