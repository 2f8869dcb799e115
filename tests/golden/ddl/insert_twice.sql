-- Two INSERTs into one sink, one after the other: the second adds to what the first wrote.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (what STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT 'low', id FROM payments WHERE amount < -40;

INSERT INTO `out` SELECT 'high', id FROM payments WHERE amount > 190;
