-- Reserved words as names in backticks, names with blanks, and names that differ in case only.
CREATE TABLE `select` (`value` BIGINT, `time` STRING, `Time` STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/semicolon.csv', 'format' = 'csv',
  'csv.field-delimiter' = ';', 'csv.quote-character' = '''', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (`order` BIGINT, `a name` STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT `value` AS `order`, `Time` || '/' || `time` AS `a name` FROM `select`;
