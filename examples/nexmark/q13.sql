-- q13: bids with what a file says about them. The benchmark looks up the file at processing time; here the file's
-- rows have a time from which they hold, and each bid gets what held at its own.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark', 'table' = 'bid', 'events.num' = '${EVENTS:-1000000}', 'first-event.rate' = '${RATE:-10000}',
  'out-of-order.max-delay' = '${DELAY:-0 s}', 'seed' = '${SEED:-42}'
);

CREATE TABLE nexmark_q13 (
  auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), `value` STRING
) WITH ('connector' = '${SINK:-blackhole}');

CREATE TABLE side_input (
  `key` BIGINT, `value` STRING, since TIMESTAMP(3),
  PRIMARY KEY (`key`) NOT ENFORCED,
  WATERMARK FOR since AS since
) WITH ('connector' = 'filesystem', 'path' = '${SIDE:-examples/nexmark/side_input.csv}', 'format' = 'csv');

INSERT INTO nexmark_q13
SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
FROM bid AS B
JOIN side_input FOR SYSTEM_TIME AS OF B.`dateTime` AS S
ON MOD(B.auction, 200) = S.`key`;
