-- E4, our own publisher: ROWS events of (long, float) in frames of FRAME events, as fast as the other end takes them.
CREATE TABLE made (iijtimestamp BIGINT, `value` FLOAT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}',
  'fields.iijtimestamp.kind' = 'sequence', 'fields.iijtimestamp.start' = '0', 'fields.iijtimestamp.end' = '${ROWS}',
  'fields.value.min' = '0', 'fields.value.max' = '1'
);
CREATE TABLE sent (iijtimestamp BIGINT, `value` FLOAT) WITH (
  'connector' = 'siddhi-tcp', 'port' = '${PORT}', 'channel' = 'inputStream', 'frame.events' = '${FRAME}'
);
INSERT INTO sent SELECT iijtimestamp, `value` FROM made;
