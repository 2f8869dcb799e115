-- q0: every bid as it is. What reading and writing cost, before there is any work.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark', 'table' = 'bid', 'events.num' = '${EVENTS:-1000000}', 'first-event.rate' = '${RATE:-10000}',
  'out-of-order.max-delay' = '${DELAY:-0 s}', 'seed' = '${SEED:-42}'
);

CREATE TABLE nexmark_q0 (
  auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING
) WITH ('connector' = '${SINK:-blackhole}');

INSERT INTO nexmark_q0
SELECT auction, bidder, price, `dateTime`, extra FROM bid;
