-- CR LF line ends, a last line without line end, line ends inside quotes.
CREATE TABLE crlf (n INT, s STRING, d DOUBLE) WITH ('connector' = 'filesystem', 'path' = '${DATA}/crlf.csv', 'format' = 'csv');

CREATE TABLE no_newline (n INT, s STRING) WITH ('connector' = 'filesystem', 'path' = '${DATA}/no_newline.csv', 'format' = 'csv');

CREATE TABLE multiline (n INT, s STRING) WITH ('connector' = 'filesystem', 'path' = '${DATA}/multiline.csv', 'format' = 'csv');

CREATE TABLE `out` (what STRING, n INT, length INT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/out', 'format' = 'csv');

INSERT INTO `out`
SELECT 'crlf', n, CHAR_LENGTH(s) FROM crlf
UNION ALL
SELECT 'no newline', n, CHAR_LENGTH(s) FROM no_newline
UNION ALL
SELECT 'multiline', n, CHAR_LENGTH(s) FROM multiline;
