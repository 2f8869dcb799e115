-- SESSION with a key: a window ends a gap after its last row; a row exactly a gap later still belongs to it, as in Flink.
CREATE TABLE clicks (
  ts BIGINT,
  who STRING,
  n BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/sessions.csv', 'format' = 'csv');

CREATE TABLE `out` (who STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT who, window_start, window_end, COUNT(*), SUM(n)
FROM TABLE(SESSION(TABLE clicks PARTITION BY who, DESCRIPTOR(rt), INTERVAL '5' SECOND))
GROUP BY who, window_start, window_end;
