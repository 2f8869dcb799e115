-- The job of vwap.sql on a million trades that the engine makes up: one trading day of 100 symbols.
-- `make demo` runs it and shows what it wrote to demo-output/.

SET 'pipeline.name' = 'vwap';

CREATE TABLE trades (
  symbol STRING,
  `time` TIMESTAMP(3),
  price DOUBLE,
  size BIGINT,
  cost AS price * size,
  WATERMARK FOR `time` AS `time` - INTERVAL '1' SECOND
) WITH (
  'connector' = 'datagen',
  'generator' = 'trades',
  'trades.disorder' = '500 ms',
  'rows-per-second' = '0',
  'number-of-rows' = '1000000'
);

CREATE TABLE costs (symbol STRING, `time` TIMESTAMP(3), price DOUBLE, size BIGINT, cost DOUBLE)
WITH ('connector' = 'filesystem', 'path' = 'demo-output/costs', 'format' = 'csv');

CREATE TABLE vwap_5m (symbol STRING, `time` TIMESTAMP(3), vwap DOUBLE)
WITH ('connector' = 'filesystem', 'path' = 'demo-output/vwap_5m', 'format' = 'csv');

CREATE TABLE vwap_1h (symbol STRING, `time` TIMESTAMP(3), vwap DOUBLE)
WITH ('connector' = 'filesystem', 'path' = 'demo-output/vwap_1h', 'format' = 'csv');

CREATE TABLE vwap_24h (symbol STRING, `time` TIMESTAMP(3), vwap DOUBLE)
WITH ('connector' = 'filesystem', 'path' = 'demo-output/vwap_24h', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN

INSERT INTO costs SELECT symbol, `time`, price, size, cost FROM trades;

INSERT INTO vwap_5m
SELECT symbol, `time`, SUM(cost) OVER w / SUM(size) OVER w FROM trades
WINDOW w AS (PARTITION BY symbol ORDER BY `time` RANGE BETWEEN INTERVAL '5' MINUTE PRECEDING AND CURRENT ROW);

INSERT INTO vwap_1h
SELECT symbol, `time`, SUM(cost) OVER w / SUM(size) OVER w FROM trades
WINDOW w AS (PARTITION BY symbol ORDER BY `time` RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW);

INSERT INTO vwap_24h
SELECT symbol, `time`, SUM(cost) OVER w / SUM(size) OVER w FROM trades
WINDOW w AS (PARTITION BY symbol ORDER BY `time` RANGE BETWEEN INTERVAL '24' HOUR PRECEDING AND CURRENT ROW);

END;
