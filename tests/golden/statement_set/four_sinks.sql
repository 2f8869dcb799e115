-- One source, four sinks: all rows of a key, two kinds of aggregate, and a range.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE only_ddd (id BIGINT, price DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/only_ddd', 'format' = 'csv');

CREATE TABLE totals (symbol STRING, n BIGINT, qty BIGINT)
WITH ('connector' = 'print');

CREATE TABLE minutes (symbol STRING, window_start TIMESTAMP(3), qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/minutes', 'format' = 'csv');

CREATE TABLE ranges (id BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/ranges', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO only_ddd SELECT id, price FROM ticks WHERE symbol = 'DDD';
INSERT INTO totals SELECT symbol, COUNT(*), SUM(qty) FROM ticks GROUP BY symbol;
INSERT INTO minutes
SELECT symbol, window_start, SUM(qty) FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(rt), INTERVAL '1' MINUTE)) GROUP BY symbol, window_start, window_end;
INSERT INTO ranges
SELECT id, COUNT(*) OVER (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW) FROM ticks;
END;
