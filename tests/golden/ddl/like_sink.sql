-- A sink with the columns of its source, made by LIKE without computed columns and watermark.
CREATE TABLE numbers (n INT, a BIGINT, b BIGINT, d DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/numbers.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE `out` WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv')
LIKE numbers (EXCLUDING OPTIONS);

INSERT INTO `out` SELECT n, b, a, d FROM numbers;
