"""What a program needs to be a function of a job: `LANGUAGE PROCESS`. Copy it, it needs pyarrow and nothing else.

A function gets an Arrow IPC stream on standard input and writes one to standard output: for each batch one batch,
in the same order. Whatever people shall read goes to standard error. docs/functions.md says it in full.
"""

import json
import sys

import pyarrow as pa

PROTOCOL = {"tidemill.protocol": "1"}
END = 2**63 - 1  # The watermark behind the last row.


def _answer(schema, answers):
    """Writes one batch for each that comes."""
    out = sys.stdout.buffer
    with pa.ipc.new_stream(out, schema) as writer:
        for answer in answers:
            writer.write_batch(answer)
            out.flush()
    out.flush()


def value(returns, function):
    """A function of values: `function` gets a pyarrow array for each argument and gives one of type `returns`."""
    asked = pa.ipc.open_stream(sys.stdin.buffer)
    schema = pa.schema([("value", returns)], metadata=PROTOCOL)
    _answer(schema, (pa.record_batch([function(*batch.columns)], schema=schema) for batch in asked))


class Table:
    """A function of tables. The class below it has `columns`, what it gives beside keys and time: pairs of a name and
    a type. It overrides `rows`, and where it keeps state by key `save` and `load`."""

    columns = []
    keeps_state = False
    wants_watermarks = False

    def rows(self, batch):
        """Rows of the table. Gives rows as tuples: the keys, the values of `columns`, with on_time the time."""
        raise NotImplementedError

    def watermark(self, time_ms):
        """No row up to this time will come any more; END behind the last. Gives rows, as `rows` does."""
        return []

    def save(self):
        """The state: pairs of a tuple of keys and bytes."""
        return []

    def load(self, keys, state):
        """Takes back what `save` gave for a key."""

    def run(self):
        asked = pa.ipc.open_stream(sys.stdin.buffer)
        says = {k.decode(): v.decode() for k, v in asked.schema.metadata.items()}
        self.keys = json.loads(says["tidemill.keys"])
        self.time = says.get("tidemill.time")
        fields = [pa.field(k, asked.schema.field(k).type) for k in self.keys]
        fields += [pa.field(name, data_type) for name, data_type in self.columns]
        if self.time:
            fields.append(pa.field("rowtime", asked.schema.field(self.time).type))
        metadata = dict(PROTOCOL)
        if self.keeps_state:
            fields.append(pa.field("$state", pa.binary()))
            metadata["tidemill.state"] = "keyed"
        if self.wants_watermarks:
            metadata["tidemill.watermarks"] = "true"
        schema = pa.schema(fields, metadata=metadata)
        _answer(schema, (self._batch(schema, self._rows(schema, batch)) for batch in asked))

    def _rows(self, schema, batch):
        controls = batch.column(batch.num_columns - 1)
        if batch.num_rows == 0 or not controls[0].is_valid:
            return [row + (None,) * self.keeps_state for row in self.rows(batch)]
        rows = []
        keys = [batch.column(k).to_pylist() for k in self.keys]
        for number, control in enumerate(controls.to_pylist()):
            word, _, argument = control.partition(b" ")
            if word == b"watermark":
                rows += [row + (None,) * self.keeps_state for row in self.watermark(int(argument))]
            elif word == b"restore":
                self.load(tuple(column[number] for column in keys), argument)
            elif word == b"checkpoint":
                empty = (None,) * (len(schema) - len(self.keys) - 1)
                rows += [key + empty + (state,) for key, state in self.save()]
        return rows

    @staticmethod
    def _batch(schema, rows):
        columns = list(zip(*rows)) if rows else [[] for _ in schema]
        return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema)], schema=schema)
