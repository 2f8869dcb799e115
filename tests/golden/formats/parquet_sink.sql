-- Parquet written: a column of each simple type. A second job reads it back, as text.
SET 'table.dml-sync' = 'true';

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

CREATE TABLE columns_ (
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
) WITH ('connector' = 'filesystem', 'path' = '${OUT}/columns_', 'format' = 'parquet');

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
) WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO columns_ SELECT * FROM types;

INSERT INTO `out` SELECT * FROM columns_;
