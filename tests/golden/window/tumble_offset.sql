-- TUMBLE shifted by an offset, positional and (with backticks) named.
CREATE TABLE bids (
  ts BIGINT,
  auction BIGINT,
  bidder STRING,
  price BIGINT,
  rating DOUBLE,
  rt AS TO_TIMESTAMP_LTZ(ts, 3),
  WATERMARK FOR rt AS rt - INTERVAL '3' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/bids.csv', 'format' = 'csv', 'csv.null-literal' = '');

CREATE TABLE positional (window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/positional', 'format' = 'csv');

CREATE TABLE named (window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT)
WITH ('connector' = 'filesystem', 'path' = '${OUT}/named', 'format' = 'csv');

EXECUTE STATEMENT SET BEGIN
INSERT INTO positional
SELECT window_start, window_end, COUNT(*)
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(rt), INTERVAL '30' SECOND, INTERVAL '7' SECOND))
GROUP BY window_start, window_end;
INSERT INTO named
SELECT window_start, window_end, COUNT(*)
FROM TABLE(TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(rt), SIZE => INTERVAL '1' MINUTE, `OFFSET` => INTERVAL '-10' SECOND))
GROUP BY window_start, window_end;
END;
