-- The name of the file a row comes from, as a metadata column.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  file STRING NOT NULL METADATA FROM 'file.name' VIRTUAL
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE `out` (file STRING, n BIGINT, total BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT file, COUNT(*), SUM(v) FROM parts GROUP BY file;
