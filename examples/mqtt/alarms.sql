-- Sensors publish their temperatures, each to a topic of its own; those above 80 degrees go back to the broker as alarms,
-- the last of each sensor retained for whoever subscribes later. Nothing is lost while the job is away: the broker keeps
-- its session, and the job acknowledges what its checkpoints hold.

CREATE TABLE readings (
  celsius DOUBLE,
  topic STRING METADATA VIRTUAL
) WITH (
  'connector' = 'mqtt',
  'url' = '${URL:-mqtt://localhost:1883}',
  'topic' = 'sensors/+/temperature',
  'client-id' = 'tidemill-readings',
  'format' = 'json'
);

CREATE TABLE alarms (
  celsius DOUBLE,
  topic STRING METADATA
) WITH (
  'connector' = 'mqtt',
  'url' = '${URL:-mqtt://localhost:1883}',
  'sink.retain' = 'true',
  'format' = 'json'
);

INSERT INTO alarms
SELECT celsius, CONCAT('alarms/', SPLIT_INDEX(topic, '/', 1))
FROM readings
WHERE celsius > 80;
