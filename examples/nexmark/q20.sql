-- q20: bids with their auctions, of category 10. A join of two streams that keeps both sides.

CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3),
  expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark', 'table' = 'auction', 'events.num' = '${EVENTS:-1000000}', 'first-event.rate' = '${RATE:-10000}',
  'out-of-order.max-delay' = '${DELAY:-0 s}', 'seed' = '${SEED:-42}'
);

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark', 'table' = 'bid', 'events.num' = '${EVENTS:-1000000}', 'first-event.rate' = '${RATE:-10000}',
  'out-of-order.max-delay' = '${DELAY:-0 s}', 'seed' = '${SEED:-42}'
);

CREATE TABLE nexmark_q20 (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_dateTime TIMESTAMP(3), bid_extra STRING,
  itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, auction_dateTime TIMESTAMP(3),
  expires TIMESTAMP(3), seller BIGINT, category BIGINT, auction_extra STRING
) WITH ('connector' = '${SINK:-blackhole}');

INSERT INTO nexmark_q20
SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.`dateTime`, B.extra,
  A.itemName, A.description, A.initialBid, A.reserve, A.`dateTime`, A.expires, A.seller, A.category, A.extra
FROM bid AS B JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10;
