-- A price that falls for some rows and rises again; each fall is compared with the row before by LAST(x, 1).
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TABLE `out` (symbol STRING, start_id BIGINT, bottom_id BIGINT, end_id BIGINT, bottom DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT T.symbol, T.start_id, T.bottom_id, T.end_id, T.bottom
FROM trades
  MATCH_RECOGNIZE (
    PARTITION BY symbol
    ORDER BY rt
    MEASURES
      START_ROW.id AS start_id,
      LAST(PRICE_DOWN.id) AS bottom_id,
      LAST(PRICE_UP.id) AS end_id,
      LAST(PRICE_DOWN.price) AS bottom
    ONE ROW PER MATCH
    AFTER MATCH SKIP TO LAST PRICE_UP
    PATTERN (START_ROW PRICE_DOWN+ PRICE_UP)
    DEFINE
      PRICE_DOWN AS
        (LAST(PRICE_DOWN.price, 1) IS NULL AND PRICE_DOWN.price < START_ROW.price) OR
          PRICE_DOWN.price < LAST(PRICE_DOWN.price, 1),
      PRICE_UP AS
        PRICE_UP.price > LAST(PRICE_DOWN.price, 1)
  ) AS T;
