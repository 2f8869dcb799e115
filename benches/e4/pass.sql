-- E4, pass-through: every event of a stream of (long, float) goes through. The marks of the load's ctl channel are printed.
--
-- PORT is that of the source; CLOCK, if given, ends its options with the column of the publisher's clock.
CREATE TABLE inputStream (iijtimestamp BIGINT, `value` FLOAT) WITH (
  'connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'inputStream'${CLOCK:-}
);
CREATE TABLE ctl (mark INT, sent BIGINT, batch INT, rate BIGINT, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')
WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'ctl');
CREATE TABLE marks (mark INT, sent BIGINT, `at` TIMESTAMP_LTZ(3)) WITH ('connector' = 'print', 'print-identifier' = 'ctl');
CREATE TABLE tempStream (iijtimestamp BIGINT, `value` FLOAT) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO marks SELECT mark, sent, `at` FROM ctl;
INSERT INTO tempStream SELECT iijtimestamp, `value` FROM inputStream;
END;
