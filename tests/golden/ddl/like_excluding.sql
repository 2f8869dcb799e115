-- LIKE without the generated columns, watermark and options of the model.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE copy_of_parts (
  file STRING METADATA FROM 'file.name' VIRTUAL
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts/part-1.csv', 'format' = 'csv')
LIKE parts (EXCLUDING GENERATED EXCLUDING WATERMARKS EXCLUDING OPTIONS);

CREATE TABLE `out` (ts BIGINT, k STRING, v BIGINT, file STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT * FROM copy_of_parts WHERE v < 20;
