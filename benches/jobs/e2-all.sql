-- Reads all columns of files and throws the rows away.
SET 'execution.runtime-mode' = 'batch';

CREATE TABLE gone WITH ('connector' = 'blackhole') AS SELECT * FROM '${FILES}';
