-- Top-N whose rank nobody asks for, over one key and over all rows. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE best (symbol STRING, id BIGINT, price DOUBLE)
WITH ('connector' = 'print');

CREATE TABLE cheap (id BIGINT, symbol STRING)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO best
SELECT symbol, id, price
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS rn FROM ticks)
WHERE rn <= 4;
INSERT INTO cheap
SELECT id, symbol FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY price, id) AS rn FROM ticks) WHERE rn <= 7;
END;
