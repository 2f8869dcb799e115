-- E4, the goals of a soccer match: a ball beside the posts, and later a ball behind the line between them.
--
-- SKIP: with TO NEXT ROW every first position waits for the next second one, so one second one completes all that
-- wait (Siddhi's `every e1 -> e2`); with PAST LAST ROW those after the first are passed over. Siddhi's query without
-- `every` matches once in the life of the app, which is less than either does.
CREATE TABLE inputStream (
  iij_timestamp BIGINT, sid INT, eventtt BIGINT, x DOUBLE, y DOUBLE, z INT, v_abs DOUBLE, a_abs INT,
  vx INT, vy INT, vz INT, ax INT, ay INT, az INT,
  rt TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  WATERMARK FOR rt AS rt
) WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'inputStream'${CLOCK:-});
CREATE TABLE ctl (mark INT, sent BIGINT, batch INT, rate BIGINT, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')
WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'ctl');
CREATE TABLE marks (mark INT, sent BIGINT, `at` TIMESTAMP_LTZ(3)) WITH ('connector' = 'print', 'print-identifier' = 'ctl');
CREATE TABLE tempStream (iij_timestamp BIGINT, sid1 INT, sid2 INT, tt1 BIGINT, tt2 BIGINT, x DOUBLE, y DOUBLE, z INT)
WITH ('connector' = 'blackhole');
CREATE TEMPORARY VIEW decisive AS
SELECT * FROM (
  SELECT iij_timestamp, sid, eventtt, x, y, z, rt,
    (x > 29880 OR x < 22560) AND y > -33968 AND y < 33965 AS beside,
    x <= 29898 AND x > 22579 AND y <= -33968 AND z < 2440 AND a_abs >= 55000 AS inside
  FROM inputStream WHERE sid IN (4, 8, 10, 12)
) WHERE beside OR inside;
EXECUTE STATEMENT SET BEGIN
INSERT INTO marks SELECT mark, sent, `at` FROM ctl;
INSERT INTO tempStream
SELECT iij_timestamp, sid1, sid2, tt1, tt2, x, y, z FROM decisive
MATCH_RECOGNIZE (
  ORDER BY rt
  MEASURES B.iij_timestamp AS iij_timestamp, A.sid AS sid1, B.sid AS sid2, A.eventtt AS tt1, B.eventtt AS tt2, B.x AS x, B.y AS y,
    B.z AS z
  ONE ROW PER MATCH
  AFTER MATCH SKIP ${SKIP}
  PATTERN (A W* B)
  DEFINE A AS A.beside, W AS W.beside, B AS B.inside
);
END;
