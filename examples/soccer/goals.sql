-- The goals of a soccer match, found in the positions of its balls: a ball is on the field, beside the posts, and
-- the next thing that counts is that it is behind a goal's line, between the posts and below the bar.
--
--   tidemill run examples/soccer/goals.sql -D ROWS=100000000
--
-- SINK=print shows the goals. They are those that the generator lists in its table 'goals' (goals_listed.sql).

CREATE TABLE sensors (
  sid INT, ts BIGINT, `time` TIMESTAMP(3), x INT, y INT, z INT, v_abs INT, a_abs INT,
  vx INT, vy INT, vz INT, ax INT, ay INT, az INT,
  WATERMARK FOR `time` AS `time`
) WITH (
  'connector' = 'soccer', 'number-of-rows' = '${ROWS:-10000000}', 'goals.interval' = '${INTERVAL:-60 s}', 'seed' = '${SEED:-42}'
);

CREATE TABLE goals (sid INT, `time` TIMESTAMP(3), ts BIGINT, side STRING, shot BIGINT, x INT, y INT, z INT)
WITH ('connector' = '${SINK:-blackhole}');

-- Two conditions of a single row: on the field beside the posts; behind a line between them, below the bar, and
-- not rolling out.
CREATE TEMPORARY VIEW balls AS
SELECT sid, `time`, ts, x, y, z,
  (x > 29880 OR x < 22560) AND y > -33968 AND y < 33965 AS beside,
  ((x <= 29898 AND x > 22579 AND y <= -33968) OR (x <= 29880 AND x > 22560 AND y >= 33965))
    AND z < 2440 AND a_abs >= 55000 AS inside
FROM sensors
WHERE sid IN (4, 8, 10, 12);

-- Rows of which neither holds decide nothing. Without them the two rows of a goal follow each other, however much
-- time lies between, and the pattern need not say what may come in between.
CREATE TEMPORARY VIEW decisive AS SELECT * FROM balls WHERE beside OR inside;

INSERT INTO goals
SELECT sid, `time`, ts, CASE WHEN y > 0 THEN 'north' ELSE 'south' END, shot, x, y, z
FROM decisive
MATCH_RECOGNIZE (
  PARTITION BY sid
  ORDER BY `time`, ts
  MEASURES B.`time` AS `time`, B.ts AS ts, A.ts AS shot, B.x AS x, B.y AS y, B.z AS z
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B)
  DEFINE A AS A.beside, B AS B.inside
);
