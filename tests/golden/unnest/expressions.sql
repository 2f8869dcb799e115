-- An array of expressions of the row: two rows for each, of NULLs too.
CREATE TABLE orders (
  id BIGINT, customer STRING, product STRING, price DOUBLE, qty INT, ts TIMESTAMP(3)
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE changes (id BIGINT, n INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/changes', 'format' = 'csv');
CREATE TABLE cases (id BIGINT, word STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/cases', 'format' = 'csv');

INSERT INTO changes SELECT id, n FROM orders CROSS JOIN UNNEST(ARRAY[qty, -qty]) AS u (n);
INSERT INTO cases
SELECT o.id, word FROM orders AS o LEFT JOIN UNNEST(ARRAY[o.product, CASE WHEN o.qty > 3 THEN 'many' ELSE 'few' END]) AS u (word) ON TRUE
WHERE word <> 'few';
