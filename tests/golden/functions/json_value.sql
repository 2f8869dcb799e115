-- JSON_VALUE, also with a type, JSON_EXISTS, IS JSON.
CREATE TABLE documents (n INT, doc STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/documents.csv', 'format' = 'csv',
  'csv.field-delimiter' = '|', 'csv.disable-quote-character' = 'true');

CREATE TABLE `out` (n INT, name STRING, age INT, first_sku STRING, total DOUBLE, has_items BOOLEAN, is_json BOOLEAN)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, JSON_VALUE(doc, '$.user.name'), JSON_VALUE(doc, '$.user.age' RETURNING INTEGER), JSON_VALUE(doc, '$.items[0].sku'),
  JSON_VALUE(doc, '$.total' RETURNING DOUBLE), JSON_EXISTS(doc, '$.items[0]'), doc IS JSON
FROM documents WHERE n <= 3;
