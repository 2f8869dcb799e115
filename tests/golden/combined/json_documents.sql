-- JSON in a CSV column taken apart, with defaults, and hashed keys.
CREATE TABLE documents (n INT, doc STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/documents.csv', 'format' = 'csv',
  'csv.field-delimiter' = '|', 'csv.disable-quote-character' = 'true');

CREATE TABLE `out` (n INT, who STRING, age_group STRING, first_item STRING, key_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT n, who, CASE WHEN age IS NULL THEN 'unknown' WHEN age < 30 THEN 'young' ELSE 'old' END, first_item, SUBSTRING(MD5(who), 1, 8)
FROM (
  SELECT n, COALESCE(JSON_VALUE(doc, '$.user.name'), 'nobody') AS who, CAST(JSON_VALUE(doc, '$.user.age') AS INT) AS age,
    JSON_VALUE(doc, '$.items[0].sku') AS first_item
  FROM documents WHERE doc LIKE '{%'
);
