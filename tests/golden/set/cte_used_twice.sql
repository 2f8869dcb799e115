-- A common table expression used twice gives its rows to both uses.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (what STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
WITH big AS (SELECT id, amount FROM payments WHERE amount > 185)
SELECT 'large', id FROM big
UNION ALL
SELECT 'even', id FROM big WHERE MOD(amount, 2) = 0;
