-- Lines of files, straight from where they are packed. FILES is a path in quotes, or read_csv(…).
SET 'execution.runtime-mode' = 'batch';

CREATE TABLE counted (lines BIGINT) WITH ('connector' = 'stdout', 'format' = 'csv');

INSERT INTO counted SELECT COUNT(*) FROM ${FILES};
