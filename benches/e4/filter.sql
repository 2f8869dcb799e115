-- E4, filter: of values spread evenly from 0 to 1 the share LIMIT goes through.
CREATE TABLE inputStream (iijtimestamp BIGINT, `value` FLOAT) WITH (
  'connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'inputStream'${CLOCK:-}
);
CREATE TABLE ctl (mark INT, sent BIGINT, batch INT, rate BIGINT, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')
WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'ctl');
CREATE TABLE marks (mark INT, sent BIGINT, `at` TIMESTAMP_LTZ(3)) WITH ('connector' = 'print', 'print-identifier' = 'ctl');
CREATE TABLE tempStream (iijtimestamp BIGINT, `value` FLOAT) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO marks SELECT mark, sent, `at` FROM ctl;
INSERT INTO tempStream SELECT iijtimestamp, `value` FROM inputStream WHERE `value` <= ${LIMIT};
END;
