-- One table read with and without a hint in one job: each reference has its own options, also where the queries are alike.
CREATE TABLE orders (id BIGINT, customer STRING, product STRING, price STRING, qty STRING, at_ STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders.csv', 'format' = 'csv', 'csv.null-literal' = 'NULL');

CREATE TABLE declared (id BIGINT, customer STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/declared', 'format' = 'csv');

CREATE TABLE hinted (id BIGINT, customer STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/hinted', 'format' = 'csv');

CREATE TABLE joined (id BIGINT, customer STRING, other STRING)
WITH ('connector' = 'print');

EXECUTE STATEMENT SET BEGIN
INSERT INTO hinted SELECT id, customer FROM orders /*+ OPTIONS('csv.null-literal' = 'alice') */ WHERE id > 6;
INSERT INTO declared SELECT id, customer FROM orders WHERE id > 6;
INSERT INTO joined
SELECT a.id, a.customer, b.customer FROM orders AS a
JOIN orders /*+ OPTIONS('csv.null-literal' = 'bob') */ AS b ON a.id = b.id WHERE a.id BETWEEN 7 AND 10;
END;
