-- Windows over event times before 1970: aligned to the epoch, starts rounded down.
CREATE TABLE history (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/before_1970.csv', 'format' = 'csv');

CREATE TABLE tumble (window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/tumble', 'format' = 'csv');

CREATE TABLE hop (window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, total BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/hop', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO tumble
SELECT window_start, window_end, COUNT(*), SUM(v)
FROM TABLE(TUMBLE(TABLE history, DESCRIPTOR(rt), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
INSERT INTO hop
SELECT window_start, window_end, COUNT(*), SUM(v)
FROM TABLE(HOP(TABLE history, DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
END;
