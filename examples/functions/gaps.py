"""A function of tables: finds silences. For each key it gives a row when nothing had come for longer than the seconds
that its command names. It is called with on_time, so rows come in order of time, whatever order they arrive in; and it
keeps the last time of each key as state, so it goes on after a restart as if nothing had been."""

import sys

import pyarrow as pa

from tidemill_function import Table

LIMIT_MS = int(float(sys.argv[1]) * 1000)


class Gaps(Table):
    columns = [("silent_s", pa.float64())]
    keeps_state = True

    def __init__(self):
        self.last = {}

    def rows(self, batch):
        found = []
        keys = [batch.column(k).to_pylist() for k in self.keys]
        for key, time in zip(zip(*keys), batch.column(self.time).cast(pa.int64()).to_pylist()):
            silent = time - self.last.get(key, time)
            if silent > LIMIT_MS:
                found.append(key + (silent / 1000, time))
            self.last[key] = time
        return found

    def save(self):
        return [(key, str(time).encode()) for key, time in self.last.items()]

    def load(self, keys, state):
        self.last[keys] = int(state)


Gaps().run()
