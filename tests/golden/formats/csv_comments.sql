-- Lines that begin with # are passed over if asked for.
CREATE TABLE commented (n STRING, s STRING)
WITH ('connector' = 'filesystem', 'path' = '${DATA}/comments.csv', 'format' = 'csv', 'csv.allow-comments' = 'true');

CREATE TABLE `out` (n STRING, s STRING)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out` SELECT n, s FROM commented;
