-- A count for each of KEYS keys of 100 bytes. The first KEYS rows each bring a new key; later ones come back to them in
-- an order that jumps about. There is one split, so that the newest id of a key is that of the row that has just come.
-- Rows are due RATE a second (0: at once), and every EVERY-th shows that it has come through.
CREATE TABLE messages (
  id BIGINT,
  k AS CONCAT(CAST(1000000000 + MOD(id * 7919, ${KEYS}) AS STRING), 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')
) WITH ('connector' = 'datagen', 'rows-per-second' = '${RATE}', 'splits' = '1', 'fields.id.kind' = 'sequence');
CREATE TABLE seen (id BIGINT) WITH ('connector' = 'print');
INSERT INTO seen SELECT newest FROM (SELECT k, COUNT(*) AS c, MAX(id) AS newest FROM messages GROUP BY k) WHERE c > 0 AND MOD(newest, ${EVERY}) = 0;
