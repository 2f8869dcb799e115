"""Publishes orders into a stream of `tidemill serve`. Whatever breaks on the way, each of them arrives once.

    python publish.py --rows 10000

The rows are numbered from 0. The server counts those that it has taken from the publisher of this name, and says
in its first answer from which one to go on. A source that can be read again from a row (here: a function of the
row's number) needs nothing else.
"""

import argparse
import json
import os
import sys
import time

import pyarrow as pa
import pyarrow.flight as flight

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("customer", pa.string()), ("amount", pa.float64())])

# Once it has worked: the server is away; it is back, and its streams are not yet. What is
# unavailable may just be starting, so that is waited for in any case.
PASSING = (flight.FlightUnavailableError, flight.FlightInternalError, pa.ArrowKeyError, pa.ArrowInvalid)
GIVE_UP_SECONDS = 60


def orders(first, count):
    """Rows first, first + 1, …: a row is the same whenever it is asked for."""
    numbers = range(first, first + count)
    columns = [list(numbers), [f"customer {n % 7}" for n in numbers], [float(n % 200) for n in numbers]]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA)], schema=SCHEMA)


class Publisher:
    def __init__(self, client, call, descriptor):
        self.client, self.call, self.descriptor = client, call, descriptor
        self.known = False  # Whether it has worked once.
        self.broken = None  # Since when it does not.

    def publish(self, total, block_rows):
        """One connection: from the row that the server wants next to the last, until all are safe."""
        writer, answers = self.client.do_put(self.descriptor, SCHEMA, self.call)
        with writer:  # Leaving it raises what the server has refused.
            row = self.answer(writer, answers)["offset"]
            print(f"from row {row}", flush=True)
            while row < total:
                block = orders(row, min(block_rows, total - row))
                writer.write_with_metadata(block, json.dumps({"offset": row}).encode())
                row += block.num_rows
            writer.done_writing()
            # The server ends the call when a checkpoint has made all rows safe.
            while (answer := answers.read()) is not None:
                print("safe:", json.loads(answer.to_pybytes())["acknowledged"], flush=True)

    def answer(self, writer, answers):
        answer = answers.read()
        if answer is None:
            writer.close()  # Raises the reason.
            raise flight.FlightUnavailableError("the server ended the call")
        self.known, self.broken = True, None
        return json.loads(answer.to_pybytes())

    def publish_all(self, total, block_rows):
        while True:
            try:
                return self.publish(total, block_rows)
            except PASSING as error:
                self.broken = self.broken or time.monotonic()
                starts = isinstance(error, flight.FlightUnavailableError)
                if not (self.known or starts) or time.monotonic() - self.broken > GIVE_UP_SECONDS:
                    raise
                print(f"trying again: {error}", file=sys.stderr)
                time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="grpc://127.0.0.1:7733", help="grpc://… or grpc+tls://…")
    parser.add_argument("--ca-file", help="PEM certificates that the server's must go back to")
    parser.add_argument("--stream", default="orders")
    parser.add_argument("--publisher", default="python", help="the name under which the server counts the rows")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--block-rows", type=int, default=500)
    given = parser.parse_args()

    certificates = open(given.ca_file, "rb").read() if given.ca_file else None
    token = os.environ.get("TIDEMILL_TOKEN")
    call = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + token.encode())] if token else [])
    descriptor = flight.FlightDescriptor.for_path(given.stream, given.publisher)
    with flight.connect(given.server, tls_root_certs=certificates) as client:
        Publisher(client, call, descriptor).publish_all(given.rows, given.block_rows)


if __name__ == "__main__":
    main()
