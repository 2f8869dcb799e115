-- E4, time window: average and number of the values of the last SPAN, such as '1' SECOND, at every event.
--
-- Rows of the same millisecond have the same frame, so they leave when the next millisecond begins.
CREATE TABLE inputStream (
  iijtimestamp BIGINT, `value` FLOAT,
  rt TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  WATERMARK FOR rt AS rt
) WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'inputStream'${CLOCK:-});
CREATE TABLE ctl (mark INT, sent BIGINT, batch INT, rate BIGINT, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')
WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'ctl');
CREATE TABLE marks (mark INT, sent BIGINT, `at` TIMESTAMP_LTZ(3)) WITH ('connector' = 'print', 'print-identifier' = 'ctl');
CREATE TABLE tempStream (iijtimestamp BIGINT, a DOUBLE, n BIGINT) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO marks SELECT mark, sent, `at` FROM ctl;
INSERT INTO tempStream SELECT iijtimestamp, CAST(AVG(`value`) OVER w AS DOUBLE), COUNT(*) OVER w FROM inputStream
WINDOW w AS (ORDER BY rt RANGE BETWEEN INTERVAL ${SPAN} PRECEDING AND CURRENT ROW);
END;
