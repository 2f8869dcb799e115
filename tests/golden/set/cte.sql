-- WITH: one query built on another.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (id BIGINT, region STRING, fee DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
WITH big AS (SELECT * FROM payments WHERE amount > 150),
  southern AS (SELECT id, region, CAST(amount AS DOUBLE) / 4 AS fee FROM big WHERE region = 'south')
SELECT id, region, fee FROM southern WHERE id > 20;
