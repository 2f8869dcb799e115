-- Messages of a topic as they are, to nowhere.
CREATE TABLE messages (v BYTES) WITH (
  'connector' = 'kafka',
  'topic' = '${TOPIC}',
  'properties.bootstrap.servers' = '${SERVERS}',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset',
  'format' = 'raw'${OPTIONS:-}
);
CREATE TABLE nowhere (v BYTES) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT v FROM messages;
