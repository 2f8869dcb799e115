-- The job of vwap.sql, fed by whoever publishes trades: a program over Arrow Flight, HTTP or WebSocket, or
-- an adapter, which is a connector in a process of its own.
--
--   tidemill serve examples/vwap/served.sql -D OUT=vwap-output --state-dir state
--   tidemill adapter --from 'connector=filesystem,path=trades.csv,format=csv' --to flight://127.0.0.1:7733/trades
--
-- OUT gets a directory for each sink.

SET 'execution.checkpointing.interval' = '1 s';

CREATE TABLE trades (
  symbol STRING,
  `time` TIMESTAMP(3),
  price DOUBLE,
  size BIGINT,
  exchange STRING,
  sale_condition STRING,
  suspicious INT,
  cost AS price * size,
  WATERMARK FOR `time` AS `time` - INTERVAL '1' SECOND
) WITH (
  'connector' = 'stream'
);

CREATE TABLE costs (symbol STRING, `time` TIMESTAMP(3), price DOUBLE, size BIGINT, cost DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/costs', 'format' = 'csv');

CREATE TABLE vwap_5m (symbol STRING, `time` TIMESTAMP(3), vwap DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/vwap_5m', 'format' = 'csv');

CREATE TABLE vwap_1h (symbol STRING, `time` TIMESTAMP(3), vwap DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/vwap_1h', 'format' = 'csv');

CREATE TABLE vwap_24h (symbol STRING, `time` TIMESTAMP(3), vwap DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/vwap_24h', 'format' = 'csv');

-- One job: the trades are read once and feed all four sinks.
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
