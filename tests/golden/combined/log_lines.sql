-- Text wrangling: fields out of key=value texts, normalised, counted.
CREATE TABLE lines (n INT, line STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/log.txt', 'format' = 'csv', 'csv.field-delimiter' = '|');

CREATE TABLE parsed (n INT, level STRING, service STRING, ms BIGINT, at_ TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/parsed', 'format' = 'csv');

CREATE TABLE by_level (level STRING, service STRING, n BIGINT, slowest BIGINT)
WITH ('connector' = 'print');

CREATE TEMPORARY VIEW fields AS
SELECT n,
  UPPER(TRIM(REGEXP_EXTRACT(line, 'level=([A-Za-z]+)', 1))) AS level,
  SPLIT_INDEX(REGEXP_EXTRACT(line, 'svc=([a-z./-]+)', 1), '/', 0) AS service,
  TRY_CAST(REGEXP_EXTRACT(line, 'ms=([^ ]+)', 1) AS BIGINT) AS ms,
  TO_TIMESTAMP(SUBSTRING(line, 1, 19)) AS at_
FROM lines WHERE line LIKE '%level=%';

EXECUTE STATEMENT SET BEGIN
INSERT INTO parsed SELECT n, level, service, ms, at_ FROM fields;
INSERT INTO by_level SELECT level, service, COUNT(*), MAX(ms) FROM fields GROUP BY level, service;
END;
