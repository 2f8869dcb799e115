-- QUALIFY: a Top-N, a deduplication and a window Top-N without a subquery. Worked out by DuckDB.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE top_ (symbol STRING, id BIGINT, price DOUBLE, rn BIGINT)
WITH ('connector' = 'print');

CREATE TABLE first_ (symbol STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/first_', 'format' = 'csv');

CREATE TABLE windows_ (window_start TIMESTAMP(3), symbol STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/windows_', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO top_
SELECT symbol, id, price, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) AS rn FROM trades
QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, id) <= 2;
INSERT INTO first_
SELECT symbol, id FROM trades QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY rt) = 1;
INSERT INTO windows_
SELECT window_start, symbol, id FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(rt), INTERVAL '5' SECOND))
QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end, symbol ORDER BY price DESC, id) = 1;
END;
