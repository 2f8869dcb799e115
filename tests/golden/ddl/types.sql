-- A column of each simple type, read and written.
CREATE TABLE types (
  a TINYINT,
  b SMALLINT,
  c INT,
  d BIGINT,
  e FLOAT,
  f DOUBLE,
  g DECIMAL(10, 3),
  h BOOLEAN,
  i VARCHAR(20),
  j DATE,
  k TIME(0),
  l TIMESTAMP(3)
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/types.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (
  a TINYINT,
  b SMALLINT,
  c INT,
  d BIGINT,
  e FLOAT,
  f DOUBLE,
  g DECIMAL(10, 3),
  h BOOLEAN,
  i VARCHAR(20),
  j DATE,
  k TIME(0),
  l TIMESTAMP(3)
)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT * FROM types;
