-- Window Top-N over the rows of a window, of each symbol and of all. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE dear (window_start TIMESTAMP(3), symbol STRING, rn BIGINT, id BIGINT, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/dear', 'format' = 'csv');

CREATE TABLE cheap (window_end TIMESTAMP(3), id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/cheap', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO dear
SELECT window_start, symbol, rn, id, price
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, symbol ORDER BY price DESC, id) AS rn
  FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND)))
WHERE rn <= 2;
INSERT INTO cheap
SELECT window_end, id
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price, id) AS rn
  FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '5' SECOND)))
WHERE rn BETWEEN 2 AND 3;
END;
