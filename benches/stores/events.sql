-- The events of examples/databases as CSV, for the databases' own clients: the same seed gives the same events. KEYS is
-- 'kind' = 'sequence' for events to be inserted, and bounds of random keys for events that update.

CREATE TABLE made_up (
  event_id BIGINT, event_time TIMESTAMP(3), host STRING, process STRING, process_id INT, owner STRING, state STRING,
  cpu DOUBLE, memory BIGINT, message STRING
) WITH (
  'connector' = 'datagen', 'number-of-rows' = '${EVENTS}', 'rows-per-second' = '0', 'seed' = '${SEED:-42}',
  'start-time' = '2024-01-01 00:00:00',
  ${KEYS},
  'fields.host.length' = '16', 'fields.process.length' = '24', 'fields.owner.length' = '12', 'fields.state.length' = '8',
  'fields.process_id.min' = '1', 'fields.process_id.max' = '65535', 'fields.cpu.max' = '100',
  'fields.memory.min' = '0', 'fields.memory.max' = '68719476736', 'fields.message.length' = '84'
);

CREATE TABLE events (
  event_id BIGINT, event_time TIMESTAMP(3), host STRING, process STRING, process_id INT, owner STRING, state STRING,
  cpu DOUBLE, memory BIGINT, message STRING
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '${OUT}');

INSERT INTO events SELECT * FROM made_up;
