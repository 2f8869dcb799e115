-- With quoting disabled a quote is a character like others.
CREATE TABLE documents (n INT, doc STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/documents.csv', 'format' = 'csv',
  'csv.field-delimiter' = '|', 'csv.disable-quote-character' = 'true');

CREATE TABLE `out` (n INT, doc STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, doc FROM documents WHERE n <= 5;
