-- ORDER BY … LIMIT in any order, with OFFSET, and by a column that is not selected. Worked out by DuckDB.
CREATE TABLE ticks (
  id BIGINT,
  ts BIGINT,
  symbol STRING,
  price DOUBLE,
  qty BIGINT,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/ticks.csv', 'format' = 'csv');

CREATE TABLE dear (id BIGINT, price DOUBLE)
WITH ('connector' = 'print');

CREATE TABLE next_ (symbol STRING, id BIGINT)
WITH ('connector' = 'print');

CREATE TABLE worth (id BIGINT)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO dear SELECT id, price FROM ticks ORDER BY price DESC, id LIMIT 5;
INSERT INTO next_ SELECT symbol, id FROM ticks ORDER BY price DESC, id LIMIT 4 OFFSET 3;
INSERT INTO worth SELECT id FROM ticks ORDER BY price * qty, id LIMIT 6;
END;
