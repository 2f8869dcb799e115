-- A window over JSON lines with a watermark on a text that is parsed.
CREATE TABLE sensors (
  id INT,
  temp DOUBLE,
  ts STRING,
  rt AS TO_TIMESTAMP(ts),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/sensors.jsonl', 'format' = 'json');

CREATE TABLE `out` (window_start TIMESTAMP(3), n BIGINT, n_temp BIGINT, warmest DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT window_start, COUNT(*), COUNT(temp), MAX(temp) FROM TABLE(TUMBLE(TABLE sensors, DESCRIPTOR(rt), INTERVAL '2' SECOND)) GROUP BY window_start, window_end;
