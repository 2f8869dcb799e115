-- TO_TIMESTAMP and TO_DATE with and without pattern; NULL where the text does not fit.
CREATE TABLE moments (n INT, ts TIMESTAMP(3), d DATE, ms BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/moments.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` (n INT, a TIMESTAMP(3), b TIMESTAMP(3), c DATE, d DATE, e TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, TO_TIMESTAMP(CAST(d AS STRING) || ' 10:11:12'), TO_TIMESTAMP('31.12.2023 0' || CAST(n AS STRING) || ':05', 'dd.MM.yyyy HH:mm'),
  TO_DATE('2024-02-2' || CAST(n AS STRING)), TO_DATE('2024/0' || CAST(n AS STRING) || '/09', 'yyyy/MM/dd'), TO_TIMESTAMP('not a time ' || CAST(n AS STRING)) FROM moments;
