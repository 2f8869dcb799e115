-- Trades, shares and dollars of each symbol, and of these groups one row, by which engines can be compared.
SET 'execution.runtime-mode' = 'batch';

CREATE TABLE grouped (symbols BIGINT, trades BIGINT, shares BIGINT, dollars DOUBLE) WITH ('connector' = 'stdout', 'format' = 'csv');

INSERT INTO grouped
SELECT COUNT(*), SUM(trades), SUM(shares), SUM(dollars)
FROM (SELECT `Symbol`, COUNT(*) AS trades, SUM(`Size`) AS shares, SUM(`Price` * `Size`) AS dollars FROM ${FILES} GROUP BY `Symbol`);
