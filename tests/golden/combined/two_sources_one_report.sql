-- Two sources brought to one form, windowed together, then summed up over all windows.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE extra (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/extra.csv', 'format' = 'csv');

CREATE TEMPORARY VIEW all_ AS
SELECT rt, k, v, 'parts' AS origin FROM parts WHERE v > 10
UNION ALL
SELECT rt, k, v * 10, 'extra' FROM extra;

CREATE TEMPORARY VIEW per_window AS
SELECT origin, k, window_start, window_end, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE all_, DESCRIPTOR(rt), INTERVAL '15' SECOND))
GROUP BY origin, k, window_start, window_end;

CREATE TABLE windows_ (origin STRING, k STRING, window_start TIMESTAMP(3), total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/windows_', 'format' = 'csv');

CREATE TABLE report (origin STRING, k STRING, best BIGINT, n BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO windows_ SELECT origin, k, window_start, total FROM per_window;
INSERT INTO report SELECT origin, k, MAX(total), COUNT(*) FROM per_window GROUP BY origin, k;
END;
