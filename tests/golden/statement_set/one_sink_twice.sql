-- Two inserts of one set into the same sink: it gets the rows of both.
CREATE TABLE payments (id BIGINT, region STRING, account STRING, amount BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/payments.csv', 'format' = 'csv');

CREATE TABLE `out` (what STRING, id BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO `out` SELECT 'low', id FROM payments WHERE amount < -40;
INSERT INTO `out` SELECT 'high', id FROM payments WHERE amount > 190;
END;
