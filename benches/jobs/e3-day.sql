-- A day of trades in the layout of NASDAQ's files of short sales: one file of text with a header line.
SET 'execution.runtime-mode' = 'batch';

CREATE TABLE trades (symbol STRING, `time` TIMESTAMP(3), price DOUBLE, size BIGINT) WITH (
  'connector' = 'datagen', 'generator' = 'trades', 'rows-per-second' = '0', 'number-of-rows' = '${LINES}', 'seed' = '${SEED}',
  'trades.symbols' = '5000', 'start-time' = '${DAY} 09:30:00'
);

CREATE TABLE short_sales (
  `MarketCenter` STRING, `Symbol` STRING, `Date` STRING, `Time` STRING, `ShortType` STRING, `Size` BIGINT, `Price` DECIMAL(12, 4),
  `LinkIndicator` STRING, `ShortSize` BIGINT
) WITH (
  'connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'csv', 'csv.field-delimiter' = '|', 'csv.header' = 'true',
  'sink.single-file' = 'true'
);

-- Large trades are exempt, and some of them linked.
INSERT INTO short_sales
SELECT 'Q', symbol, DATE_FORMAT(`time`, 'yyyyMMdd'), DATE_FORMAT(`time`, 'HH:mm:ss'),
  CASE WHEN size >= 400 THEN 'E' ELSE 'S' END, size, price, CASE WHEN size >= 1600 THEN 'L' END, size
FROM trades;
