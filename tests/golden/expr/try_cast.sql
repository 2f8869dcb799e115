-- TRY_CAST gives NULL where CAST would fail.
CREATE TABLE texts (n INT, s STRING, t STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/texts.csv', 'format' = 'csv', 'csv.null-literal' = '\N');

CREATE TABLE `out` (n INT, number_ INT, double_ DOUBLE, day_ DATE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, TRY_CAST(t AS INT), TRY_CAST(t || '.5' AS DOUBLE), TRY_CAST('2024-' || LPAD(CAST(n + 5 AS STRING), 2, '0') || '-31' AS DATE) FROM texts;
