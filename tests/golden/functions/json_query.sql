-- JSON_QUERY gives objects and arrays as text, and NULL for scalars.
CREATE TABLE documents (n INT, doc STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/documents.csv', 'format' = 'csv',
  'csv.field-delimiter' = '|', 'csv.disable-quote-character' = 'true');

CREATE TABLE `out` (n INT, a STRING, b STRING, c STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, JSON_QUERY(doc, '$.items'), JSON_QUERY(doc, '$.user'), JSON_QUERY(doc, '$.paid') FROM documents WHERE n <= 4;
