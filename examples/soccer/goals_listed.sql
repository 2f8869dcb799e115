-- The goals of the match of goals.sql, as the generator knows them.
--
--   tidemill run examples/soccer/goals_listed.sql -D SINK=print

CREATE TABLE listed (sid INT, `time` TIMESTAMP(3), ts BIGINT, side STRING)
WITH (
  'connector' = 'soccer', 'table' = 'goals', 'number-of-rows' = '${ROWS:-10000000}', 'goals.interval' = '${INTERVAL:-60 s}',
  'seed' = '${SEED:-42}'
);

CREATE TABLE goals (sid INT, `time` TIMESTAMP(3), ts BIGINT, side STRING) WITH ('connector' = '${SINK:-blackhole}');

INSERT INTO goals SELECT sid, `time`, ts, side FROM listed;
