-- A late row is never the first: rows 5, 12 and 13 are dropped. In batch mode row 13 is the first of c. By hand.
-- batch: no
CREATE TABLE late (
  id BIGINT,
  ts BIGINT,
  k STRING,
  v BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/late.csv', 'format' = 'csv');

CREATE TABLE first_ (k STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/first_', 'format' = 'csv');

INSERT INTO first_
SELECT k, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY rt) AS rn FROM late) WHERE rn = 1;
