-- OVER without PARTITION BY, range and rows.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE in_range (id BIGINT, n BIGINT, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/in_range', 'format' = 'csv');

CREATE TABLE in_rows (id BIGINT, n BIGINT, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/in_rows', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO in_range
SELECT id, COUNT(*) OVER w, SUM(qty) OVER w FROM trades WINDOW w AS (ORDER BY rt RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW);
INSERT INTO in_rows
SELECT id, COUNT(*) OVER w, SUM(qty) OVER w FROM trades WINDOW w AS (ORDER BY rt ROWS BETWEEN 2 PRECEDING AND CURRENT ROW);
END;
