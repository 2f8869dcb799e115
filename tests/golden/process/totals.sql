-- A function of tables that answers at the end, when it is told that time has come there; and one that sees each row by itself.
-- flink: no
CREATE FUNCTION totals RETURNS TABLE (n BIGINT) LANGUAGE PROCESS AS '"${TIDEMILL}" function totals';
CREATE FUNCTION same RETURNS TABLE (region STRING, amount BIGINT) LANGUAGE PROCESS AS '"${TIDEMILL}" function copy'
WITH ('semantics' = 'row', 'batch.rows' = '7');

CREATE TABLE payments (id BIGINT, region STRING, kind STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE by_region (region STRING, kind STRING, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/by_region', 'format' = 'csv');
CREATE TABLE everything (n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/everything', 'format' = 'csv');
CREATE TABLE copied (region STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/copied', 'format' = 'csv');

INSERT INTO by_region SELECT region, kind, n FROM totals(TABLE payments PARTITION BY region, kind);
INSERT INTO everything SELECT n FROM TABLE(totals(TABLE payments)) AS t;
INSERT INTO copied SELECT region, amount FROM same(TABLE (SELECT region, amount FROM payments WHERE id <= 20));
