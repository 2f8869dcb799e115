-- The JSON messages of produce-json.sql into columns, all of which are used, to nowhere.
CREATE TABLE messages (id BIGINT, account STRING, amount INT, price DOUBLE, note STRING) WITH (
  'connector' = 'kafka',
  'topic' = '${TOPIC}',
  'properties.bootstrap.servers' = '${SERVERS}',
  'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset',
  'format' = 'json'${OPTIONS:-}
);
CREATE TABLE nowhere (id BIGINT, account STRING, amount INT, price DOUBLE, note STRING) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT * FROM messages;
