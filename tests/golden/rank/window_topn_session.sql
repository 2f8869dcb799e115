-- Window Top-N over sessions, of each user and of the sessions that have the same bounds. Worked out by DuckDB.
CREATE TABLE clicks (
  ts BIGINT,
  who STRING,
  n BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/sessions.csv', 'format' = 'csv');

CREATE TABLE best (who STRING, window_start TIMESTAMP(3), total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/best', 'format' = 'csv');

INSERT INTO best
SELECT who, window_start, total
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY total DESC, who) AS rn
  FROM (
    SELECT who, window_start, window_end, SUM(n) AS total
    FROM TABLE(SESSION(TABLE clicks PARTITION BY who, DESCRIPTOR(rt), INTERVAL '5' SECOND))
    GROUP BY who, window_start, window_end))
WHERE rn = 1;
