-- q2: bids for certain auctions, one in 123. A filter.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark', 'table' = 'bid', 'events.num' = '${EVENTS:-1000000}', 'first-event.rate' = '${RATE:-10000}',
  'out-of-order.max-delay' = '${DELAY:-0 s}', 'seed' = '${SEED:-42}'
);

CREATE TABLE nexmark_q2 (
  auction BIGINT, price BIGINT
) WITH ('connector' = '${SINK:-blackhole}');

INSERT INTO nexmark_q2
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
