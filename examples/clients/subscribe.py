"""Subscribes to a stream of `tidemill serve`.

    python subscribe.py per_customer                           the contents of a view, then its changes, as JSON lines
    python subscribe.py large_orders --into large_orders.db    every row exactly once, into a table of SQLite

The second one needs a stream with 'stream.delivery' = 'exactly-once'. Its rows are numbered; a row and its number
are written in one transaction, so that the table itself says from which row to go on.
"""

import argparse
import json
import os
import sqlite3
import sys
import time

import pyarrow as pa
import pyarrow.flight as flight

KINDS = ["+I", "-U", "+U", "-D"]

# Once it has worked: the server is away, or its job restarts; it is back, and its streams are not yet. What is
# unavailable may just be starting, so that is waited for in any case.
PASSING = (flight.FlightUnavailableError, flight.FlightInternalError, pa.ArrowKeyError, pa.ArrowInvalid)
GIVE_UP_SECONDS = 60


def text(row):
    return json.dumps(row, default=str)


def show(kind, row):
    print(text({"row_kind": kind, **row}), flush=True)


def follow(client, call, stream):
    """The current contents as new rows, then every change; after a break all of it again."""
    chunks = client.do_get(flight.Ticket(json.dumps({"stream": stream, "from": "snapshot"})), call)
    yield chunks.schema
    for chunk in chunks:
        for row in chunk.data.to_pylist() if chunk.data else []:
            show(KINDS[row.pop("row_kind", 0)], row)


def collect(client, call, stream, database, name):
    """Rows into a database, and word to the server that they need not be kept."""
    database.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, row TEXT NOT NULL)")
    (last,) = database.execute("SELECT max(number) FROM rows").fetchone()
    start = "earliest" if last is None else {"offset": last + 1}
    request = json.dumps({"stream": stream, "name": name, "from": start})
    writer, chunks = client.do_exchange(flight.FlightDescriptor.for_command(request), call)
    try:
        yield chunks.schema
        for chunk in chunks:
            block = chunk.data.to_pylist() if chunk.data else []
            after = json.loads(chunk.app_metadata.to_pybytes())["offset"]
            with database:
                database.executemany("INSERT INTO rows VALUES (?, ?)", zip(range(after - len(block), after), map(text, block)))
            writer.write_metadata(json.dumps({"ack": after}).encode())
            for row in block:
                show("+I", row)
    finally:
        chunks.cancel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stream")
    parser.add_argument("--server", default="grpc://127.0.0.1:7733", help="grpc://… or grpc+tls://…")
    parser.add_argument("--ca-file", help="PEM certificates that the server's must go back to")
    parser.add_argument("--into", metavar="DATABASE", help="a database of SQLite, made if it is not there")
    parser.add_argument("--name", default="python", help="the name under which rows are acknowledged")
    given = parser.parse_args()

    certificates = open(given.ca_file, "rb").read() if given.ca_file else None
    token = os.environ.get("TIDEMILL_TOKEN")
    call = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + token.encode())] if token else [])
    database = sqlite3.connect(given.into) if given.into else None
    known, broken = False, None  # Whether it has worked once; since when it does not.
    while True:
        try:
            with flight.connect(given.server, tls_root_certs=certificates) as client:
                if database:
                    steps = collect(client, call, given.stream, database, given.name)
                else:
                    steps = follow(client, call, given.stream)
                for _ in steps:
                    known, broken = True, None
            reason = "the job that writes the stream has ended"
        except PASSING as error:
            broken = broken or time.monotonic()
            starts = isinstance(error, flight.FlightUnavailableError)
            if not (known or starts) or time.monotonic() - broken > GIVE_UP_SECONDS:
                raise
            reason = error
        print(f"trying again: {reason}", file=sys.stderr)
        time.sleep(0.2)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
