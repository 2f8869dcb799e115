-- A metadata column whose name is the connector's key, next to a computed one that uses it.
CREATE TABLE parts (
  ts BIGINT,
  k STRING,
  v BIGINT,
  `file.name` STRING NOT NULL METADATA VIRTUAL,
  number_text AS SUBSTRING(`file.name` FROM 6 FOR 1)
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/parts', 'format' = 'csv');

CREATE TABLE `out` (file STRING, number_text STRING, v BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT `file.name`, number_text, v FROM parts WHERE k = 'x' AND v > 85;
