-- E5, CPU-bound: a count for each of a million keys, all of which stay in memory (the object cache of the
-- experiment). ROWS messages from as many splits as there are shards, or by OPTIONS from 48, as the topic has.
CREATE TABLE messages (k BIGINT)
WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '${ROWS}', 'fields.k.min' = '0', 'fields.k.max' = '999999'${OPTIONS:-});
CREATE TABLE counts (k BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counts SELECT k, COUNT(*) FROM messages GROUP BY k;
