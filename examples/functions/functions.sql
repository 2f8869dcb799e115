-- Functions that are Python programs: one counts the words of a text, one finds silences of a sensor.
-- tidemill run examples/functions/functions.sql -D PYTHON=python3
CREATE FUNCTION words (t STRING) RETURNS BIGINT LANGUAGE PROCESS AS '"${PYTHON}" examples/functions/words.py';
CREATE FUNCTION gaps RETURNS TABLE (silent_s DOUBLE) LANGUAGE PROCESS AS '"${PYTHON}" examples/functions/gaps.py 2';

CREATE TABLE readings (
  sensor STRING,
  note STRING,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'examples/functions/readings.csv', 'format' = 'csv', 'csv.header' = 'true');

CREATE TABLE notes (sensor STRING, note STRING, n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'notes');
CREATE TABLE silences (sensor STRING, silent_s DOUBLE, ended TIMESTAMP(3)) WITH ('connector' = 'print', 'print-identifier' = 'silences');

INSERT INTO notes SELECT sensor, note, words(note) FROM readings WHERE words(note) > 1;
INSERT INTO silences SELECT sensor, silent_s, rowtime FROM gaps(TABLE readings PARTITION BY sensor, on_time => DESCRIPTOR(ts));
