-- Frames of several inserts over the same rows share what they keep.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE short_ (id BIGINT, vwap DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/short_', 'format' = 'csv');

CREATE TABLE long_ (symbol STRING, id BIGINT, vwap DOUBLE, low BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/long_', 'format' = 'csv');

CREATE TABLE dear (id BIGINT, qty BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/dear', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN

INSERT INTO short_
SELECT id, SUM(price * qty) OVER w / SUM(qty) OVER w FROM ticks
WINDOW w AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW);

INSERT INTO long_
SELECT symbol, id, SUM(price * qty) OVER w / SUM(qty) OVER w, MIN(qty) OVER w FROM ticks
WINDOW w AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '8' SECOND PRECEDING AND CURRENT ROW);

INSERT INTO dear
SELECT id, q FROM (
  SELECT id, price, SUM(qty) OVER (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW) AS q FROM ticks
) WHERE price > 50;

END;
