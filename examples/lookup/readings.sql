-- Readings are joined with what a service knows about their sensors, asked for one by one but many at once,
-- and with a file of places, which is read whole.
--
-- The service gives {"data": {"name": "…", "limit": 21.5}} for http://localhost:8088/sensors/1, and 404 for
-- sensors that it does not know.

CREATE TABLE readings (
  sensor INT,
  celsius DOUBLE,
  pt AS PROCTIME()
) WITH ('connector' = 'filesystem', 'path' = 'examples/lookup/readings.csv', 'format' = 'csv');

CREATE TABLE sensors (
  sensor INT,
  name STRING,
  `limit` DOUBLE
) WITH (
  'connector' = 'http',
  'url' = '${SERVICE:-http://localhost:8088}/sensors/{sensor}',
  'format' = 'json',
  'lookup.json-path' = '$.data',
  'lookup.cache' = 'PARTIAL',
  'lookup.partial-cache.max-rows' = '10000',
  'lookup.partial-cache.expire-after-write' = '10 min',
  'lookup.timeout' = '5 s'
);

CREATE TABLE places (sensor INT, place STRING)
WITH ('connector' = 'filesystem', 'path' = 'examples/lookup/places.csv', 'format' = 'csv');

CREATE TABLE alarms (sensor INT, name STRING, place STRING, celsius DOUBLE, `limit` DOUBLE) WITH ('connector' = 'print');

INSERT INTO alarms
SELECT r.sensor, s.name, p.place, r.celsius, s.`limit`
FROM readings AS r
LEFT JOIN sensors FOR SYSTEM_TIME AS OF r.pt AS s ON s.sensor = r.sensor
JOIN places FOR SYSTEM_TIME AS OF r.pt AS p ON p.sensor = r.sensor
WHERE s.`limit` IS NULL OR r.celsius > s.`limit`;
