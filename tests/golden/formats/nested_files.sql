-- Nested values through Parquet and Avro: ROW, ARRAY and MAP, within each other, with NULLs at every level, empty ones beside them.
-- flink: no
SET 'table.dml-sync' = 'true';

CREATE TABLE nested (
  id INT,
  r ROW<a INT, b STRING, s ROW<x DOUBLE, l ARRAY<INT>>>,
  l ARRAY<STRING>,
  m MAP<STRING, INT>,
  rs ARRAY<ROW<a INT, b STRING>>,
  ml MAP<STRING, ARRAY<INT>>
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/nested.jsonl', 'format' = 'json');

CREATE TABLE in_parquet (
  id INT,
  r ROW<a INT, b STRING, s ROW<x DOUBLE, l ARRAY<INT>>>,
  l ARRAY<STRING>,
  m MAP<STRING, INT>,
  rs ARRAY<ROW<a INT, b STRING>>,
  ml MAP<STRING, ARRAY<INT>>
) WITH ('connector' = 'filesystem', 'path' = '${OUT}/in_parquet', 'format' = 'parquet');

CREATE TABLE in_avro (
  id INT,
  r ROW<a INT, b STRING, s ROW<x DOUBLE, l ARRAY<INT>>>,
  l ARRAY<STRING>,
  m MAP<STRING, INT>,
  rs ARRAY<ROW<a INT, b STRING>>,
  ml MAP<STRING, ARRAY<INT>>
) WITH ('connector' = 'filesystem', 'path' = '${OUT}/in_avro', 'format' = 'avro');

CREATE TABLE from_parquet (
  id INT,
  r ROW<a INT, b STRING, s ROW<x DOUBLE, l ARRAY<INT>>>,
  l ARRAY<STRING>,
  m MAP<STRING, INT>,
  rs ARRAY<ROW<a INT, b STRING>>,
  ml MAP<STRING, ARRAY<INT>>
) WITH ('connector' = 'filesystem', 'path' = '${OUT}/from_parquet', 'format' = 'json');

CREATE TABLE from_avro (
  id INT,
  r ROW<a INT, b STRING, s ROW<x DOUBLE, l ARRAY<INT>>>,
  l ARRAY<STRING>,
  m MAP<STRING, INT>,
  rs ARRAY<ROW<a INT, b STRING>>,
  ml MAP<STRING, ARRAY<INT>>
) WITH ('connector' = 'filesystem', 'path' = '${OUT}/from_avro', 'format' = 'json');

CREATE TABLE few_parquet (id INT, b STRING, x DOUBLE, n INT, first_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/few_parquet', 'format' = 'csv');

CREATE TABLE few_avro (id INT, b STRING, x DOUBLE, n INT, first_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/few_avro', 'format' = 'csv');

INSERT INTO in_parquet SELECT * FROM nested;

INSERT INTO in_avro SELECT * FROM nested;

INSERT INTO from_parquet SELECT * FROM in_parquet;

INSERT INTO from_avro SELECT * FROM in_avro;

INSERT INTO few_parquet SELECT id, t.r.b, t.r.s.x, CARDINALITY(l), l[1] FROM in_parquet AS t;

INSERT INTO few_avro SELECT id, t.r.b, t.r.s.x, CARDINALITY(l), l[1] FROM in_avro AS t;
