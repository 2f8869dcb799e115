-- The rows of a first-row deduplication keep their event time: windows over them. Worked out by DuckDB.
CREATE TABLE trades (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/trades.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW firsts AS
SELECT id, rt FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY qty ORDER BY rt) AS rn FROM trades) WHERE rn = 1;

CREATE TABLE counts (window_start TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/counts', 'format' = 'csv');

INSERT INTO counts
SELECT window_start, COUNT(*), SUM(id)
FROM TABLE(TUMBLE(TABLE firsts, DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY window_start, window_end;
