-- NOT IN with a comparison to the outer row: where that is unknown there is nothing to be in, and the row stays.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price DOUBLE, qty BIGINT, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE `out` (id BIGINT, qty BIGINT)
WITH ('connector' = 'print');

INSERT INTO `out` SELECT o.id, o.qty FROM orders AS o WHERE o.qty NOT IN (SELECT p.id FROM orders AS p WHERE p.qty > o.qty);
