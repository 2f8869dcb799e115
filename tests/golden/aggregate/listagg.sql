-- LISTAGG with a separator, with FILTER, with DISTINCT.
-- batch: no
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (region STRING, large STRING, accounts STRING)
WITH ('connector' = 'print');

INSERT INTO `out`
SELECT region, LISTAGG(account, '-') FILTER (WHERE amount > 150), LISTAGG(DISTINCT account, ' ') FROM payments GROUP BY region;
