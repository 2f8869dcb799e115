-- A set whose inserts read different sources.
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

CREATE TABLE from_parts (k STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/from_parts', 'format' = 'csv');

CREATE TABLE from_extra (k STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/from_extra', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO from_parts SELECT k, v FROM parts WHERE v > 90;
INSERT INTO from_extra SELECT k, v FROM extra WHERE v > 90;
END;
