-- Another delimiter and quote character, in a source and in a sink.
CREATE TABLE texts (n INT, s STRING, m STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/semicolon.csv', 'format' = 'csv',
  'csv.field-delimiter' = ';', 'csv.quote-character' = '''', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (n INT, s STRING, m STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv', 'csv.field-delimiter' = '|', 'csv.quote-character' = '''');

INSERT INTO `out` SELECT n, s || '|', m FROM texts;
