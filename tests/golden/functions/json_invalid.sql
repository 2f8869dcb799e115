-- JSON functions on text that is no JSON document, an array, and an empty text.
CREATE TABLE documents (n INT, doc STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/documents.csv', 'format' = 'csv',
  'csv.field-delimiter' = '|', 'csv.disable-quote-character' = 'true');

CREATE TABLE `out` (n INT, a STRING, b BOOLEAN, c BOOLEAN, d STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, JSON_VALUE(doc, '$.user.name'), JSON_EXISTS(doc, '$.user'), doc IS JSON, JSON_VALUE(doc, '$[1]') FROM documents WHERE n IN (4, 5);
