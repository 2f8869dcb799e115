-- Without a NULL literal an empty field is NULL for every type but STRING.
-- flink: no
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv');

CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv');

CREATE TABLE out_numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out_numbers', 'format' = 'csv');

CREATE TABLE out_moments (n INT, ts_null BOOLEAN, d_null BOOLEAN, ms STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out_moments', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO out_numbers SELECT n, a, b, d FROM numbers WHERE a IS NULL OR b IS NULL OR d IS NULL;
INSERT INTO out_moments SELECT n, ts IS NULL, d IS NULL, ms FROM moments WHERE n >= 6;
END;
