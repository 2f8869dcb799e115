-- Updates by key: events whose keys are chosen uniformly among those of 0 to LAST, which fill.sql
-- has put into the table.

SET 'pipeline.name' = 'update-events';

CREATE TABLE made_up (
  event_id BIGINT, event_time TIMESTAMP(3), host STRING, process STRING, process_id INT, owner STRING, state STRING,
  cpu DOUBLE, memory BIGINT, message STRING
) WITH (
  'connector' = 'datagen', 'number-of-rows' = '${EVENTS:-1000000}', 'rows-per-second' = '${RATE:-0}', 'seed' = '${SEED:-43}',
  'splits' = '2', 'start-time' = '2024-02-01 00:00:00',
  'fields.event_id.min' = '0', 'fields.event_id.max' = '${LAST:-999999}',
  'fields.host.length' = '16', 'fields.process.length' = '24', 'fields.owner.length' = '12', 'fields.state.length' = '8',
  'fields.process_id.min' = '1', 'fields.process_id.max' = '65535', 'fields.cpu.max' = '100',
  'fields.memory.min' = '0', 'fields.memory.max' = '68719476736', 'fields.message.length' = '84'
);

CREATE TABLE process_states (
  event_id BIGINT, event_time TIMESTAMP(3), host STRING, process STRING, process_id INT, owner STRING, state STRING,
  cpu DOUBLE, memory BIGINT, message STRING,
  PRIMARY KEY (event_id) NOT ENFORCED
) WITH (
  'connector' = 'jdbc', 'url' = '${URL:-jdbc:sqlite:events.db}', 'username' = '${USERNAME:-}', 'password' = '${PASSWORD:-}',
  'table-name' = '${TABLE:-process_states}'
);

INSERT INTO process_states
SELECT event_id, event_time, host, process, process_id, owner, state, cpu, memory, message FROM made_up;
