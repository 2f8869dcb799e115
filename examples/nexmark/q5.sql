-- q5: the auctions with the most bids of the last ten seconds, every two seconds. Hopping windows joined with
-- the maximum of themselves.

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark', 'table' = 'bid', 'events.num' = '${EVENTS:-1000000}', 'first-event.rate' = '${RATE:-10000}',
  'out-of-order.max-delay' = '${DELAY:-0 s}', 'seed' = '${SEED:-42}'
);

CREATE TABLE nexmark_q5 (
  auction BIGINT, num BIGINT
) WITH ('connector' = '${SINK:-blackhole}');

CREATE TEMPORARY VIEW counted AS
SELECT auction, COUNT(*) AS num, window_start, window_end
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end;

INSERT INTO nexmark_q5
SELECT C.auction, C.num
FROM counted AS C
JOIN (
  SELECT MAX(num) AS num, window_start, window_end FROM counted GROUP BY window_start, window_end
) AS M
ON C.window_start = M.window_start AND C.window_end = M.window_end AND C.num >= M.num;
