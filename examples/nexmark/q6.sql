-- q6: the average of the winning bids of each seller's last ten auctions. Flink's own suite leaves it out: as the
-- benchmark words it, it needs an OVER over rows that are updated. Here the ten newest auctions of a seller are
-- a Top-N over the winning bids as they stand.

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

CREATE TABLE nexmark_q6 (
  seller BIGINT, price BIGINT
) WITH ('connector' = '${SINK:-blackhole}');

INSERT INTO nexmark_q6
SELECT seller, AVG(price)
FROM (
  SELECT seller, price, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS newest
  FROM (
    SELECT A.id, A.seller, A.expires, MAX(B.price) AS price
    FROM auction AS A JOIN bid AS B ON A.id = B.auction
    WHERE B.`dateTime` BETWEEN A.`dateTime` AND A.expires
    GROUP BY A.id, A.seller, A.expires
  )
)
WHERE newest <= 10
GROUP BY seller;
