-- JSON messages of 100 bytes: {"id":1000000000,"account":"…16…","amount":123456,"price":12345.67,"note":"…11…"}.
CREATE TABLE made (id BIGINT, account STRING, amount INT, price DECIMAL(7, 2), note STRING) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '0',
  'number-of-rows' = '${ROWS}',
  'fields.id.kind' = 'sequence',
  'fields.id.start' = '1000000000',
  'fields.account.length' = '16',
  'fields.amount.min' = '100000',
  'fields.amount.max' = '999999',
  'fields.price.min' = '10000',
  'fields.price.max' = '99999.99',
  'fields.note.length' = '11'
);
CREATE TABLE messages (id BIGINT, account STRING, amount INT, price DECIMAL(7, 2), note STRING) WITH (${SINK});
INSERT INTO messages SELECT * FROM made;
