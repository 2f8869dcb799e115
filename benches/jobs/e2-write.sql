-- Writes a Parquet file again, in another format: one file where OUT has the extension of a format, otherwise a file for each shard.
COPY (SELECT ${COLUMNS:-*} FROM '${FILES}'${LIMIT:-}) TO '${OUT}' (FORMAT ${FORMAT}${MORE:-});
