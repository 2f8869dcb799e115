-- Unique messages of 100 bytes, made up and written to SINK: a topic, or 'connector' = 'blackhole' to see what
-- making them up costs.
CREATE TABLE made (k STRING)
WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}', 'fields.k.length' = '100');
CREATE TABLE messages (k STRING) WITH (${SINK});
INSERT INTO messages SELECT k FROM made;
