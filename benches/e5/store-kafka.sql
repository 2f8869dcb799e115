-- E5, local store, from a broker: a count for each unique key of 100 bytes, with more state than memory.
--
-- Run it with --memory, as local-store.sql. SINK is what the counts go to, nowhere by default.
CREATE TABLE messages (k STRING) WITH (
  'connector' = 'kafka',
  'topic' = '${TOPIC}',
  'properties.bootstrap.servers' = '${SERVERS}',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset',
  'format' = 'raw'
);
CREATE TABLE counts (k STRING, c BIGINT${KEY:-}) WITH (${SINK:-'connector' = 'blackhole'});
INSERT INTO counts SELECT k, COUNT(*) FROM messages GROUP BY k;
