-- E4, VWAP: the volume-weighted average price of each symbol over the last second, at every trade. As Siddhi has it, a
-- trade's window ends with itself, so each is answered when it comes.
SET 'over.ties' = 'by-arrival';
CREATE TABLE inputStream (
  iijtimestamp BIGINT, symbol STRING, price FLOAT, volume BIGINT,
  rt TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  WATERMARK FOR rt AS rt
) WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'inputStream'${CLOCK:-});
CREATE TABLE ctl (mark INT, sent BIGINT, batch INT, rate BIGINT, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')
WITH ('connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'ctl');
CREATE TABLE marks (mark INT, sent BIGINT, `at` TIMESTAMP_LTZ(3)) WITH ('connector' = 'print', 'print-identifier' = 'ctl');
CREATE TABLE tempStream (iijtimestamp BIGINT, symbol STRING, vwap DOUBLE) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO marks SELECT mark, sent, `at` FROM ctl;
INSERT INTO tempStream
SELECT iijtimestamp, symbol, SUM(CAST(price AS DOUBLE) * volume) OVER w / SUM(volume) OVER w FROM inputStream
WINDOW w AS (PARTITION BY symbol ORDER BY rt RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW);
END;
