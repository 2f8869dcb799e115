-- E5, local store: read-modify-write of unique keys of 100 bytes, a count for each, with more state than memory.
--
-- ROWS keys come once each. Run it with --memory, such as 1GB for 50 million keys (about 7 GB of state): what does
-- not fit goes to the disk.
CREATE TABLE messages (k STRING)
WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}', 'fields.k.length' = '100');
CREATE TABLE counts (k STRING, c BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counts SELECT k, COUNT(*) FROM messages GROUP BY k;
