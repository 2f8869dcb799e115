-- E4, time window: average and number of the values of the last SPAN, such as '1' SECOND, at every event.
--
-- As Siddhi has it, an event's window ends with itself: of events of the same millisecond those are in it that came
-- before. So each is answered when it comes. FOLD, if given, is a condition such as WHERE `last`: then only the last
-- event of each frame is answered, with all events of the frame counted, as Siddhi's aggregating queries do.
SET 'over.ties' = 'by-arrival';
CREATE TABLE inputStream (
  iijtimestamp BIGINT, `value` FLOAT,
  rt TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  `last` BOOLEAN METADATA FROM 'frame-end',
  WATERMARK FOR rt AS rt
) WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'inputStream'${CLOCK:-});
CREATE TABLE ctl (mark INT, sent BIGINT, batch INT, rate BIGINT, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')
WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'ctl');
CREATE TABLE marks (mark INT, sent BIGINT, `at` TIMESTAMP_LTZ(3)) WITH ('connector' = 'print', 'print-identifier' = 'ctl');
CREATE TABLE tempStream (iijtimestamp BIGINT, a DOUBLE, n BIGINT) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO marks SELECT mark, sent, `at` FROM ctl;
INSERT INTO tempStream SELECT iijtimestamp, a, n FROM (
  SELECT iijtimestamp, `last`, CAST(AVG(`value`) OVER w AS DOUBLE) AS a, COUNT(*) OVER w AS n FROM inputStream
  WINDOW w AS (ORDER BY rt RANGE BETWEEN INTERVAL ${SPAN} PRECEDING AND CURRENT ROW)
) ${FOLD:-};
END;
