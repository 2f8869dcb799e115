-- Keys and orders that are computed, and an expression of the rank. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE worth (half BIGINT, place BIGINT, id BIGINT, worth DOUBLE)
WITH ('connector' = 'print');

CREATE TABLE letters (letter STRING, id BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO worth
SELECT half, rn * 10, id, price * qty
FROM (SELECT *, id % 2 AS half, ROW_NUMBER() OVER (PARTITION BY id % 2 ORDER BY price * qty DESC, id) AS rn FROM ticks)
WHERE rn <= 4;
INSERT INTO letters
SELECT letter, id
FROM (SELECT *, LOWER(symbol) AS letter, ROW_NUMBER() OVER (PARTITION BY LOWER(symbol) ORDER BY ABS(price - 50), id) AS rn FROM ticks)
WHERE rn <= 2;
END;
