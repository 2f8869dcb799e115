-- Experiment E5, remote I/O: rows of ten partitions, each joined with what a server says about its key.
CREATE TABLE events (
  id BIGINT,
  pt AS PROCTIME()
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '0',
  'number-of-rows' = '${ROWS}',
  'splits' = '${PARTITIONS:-10}',
  'fields.id.kind' = 'sequence'
);

CREATE TABLE server (id BIGINT, name STRING) WITH (
  'connector' = 'http',
  'url' = 'http://127.0.0.1:${PORT}/{id}',
  'format' = 'json',
  'lookup.max-retries' = '0'
  ${OPTIONS:-}
);

CREATE TABLE found (id BIGINT, name STRING) WITH ('connector' = '${SINK:-blackhole}');

INSERT INTO found
SELECT /*+ LOOKUP('table' = 's', 'output-mode' = '${MODE:-ordered}') */ e.id, s.name
FROM events AS e LEFT JOIN server FOR SYSTEM_TIME AS OF e.pt AS s ON s.id = e.id;
