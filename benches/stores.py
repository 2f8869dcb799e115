#!/usr/bin/env python3
"""Experiment E4's store jobs: process-monitoring events into databases, and updates by key, on this machine.

  cargo build --release -p tidemill
  benches/stores.py [--stores sqlite,postgres,mariadb] [--rows 10000000] [--table 10000000] [--updates 1000000] [--quick]

Servers are started by this program, on files below --work, with the settings of their installation; a store that is not
installed is said and left out. Python's standard library only. What is measured, --rounds times, all cells in turn:

  insert            --rows events into an empty table: our job (examples/databases/insert.sql), and the store's own bulk path
                    with its own client (\\copy of psql, LOAD DATA LOCAL of mariadb, .import of sqlite3) out of a file of CSV
                    with the same events into the same table
  update            --updates events whose keys are chosen uniformly among those of a table of --table rows: our job
                    (examples/databases/update.sql); one prepared UPDATE an event, each in its own transaction, for --seconds;
                    INSERT … ON CONFLICT (ON DUPLICATE KEY) statements of a thousand rows
  latency           our insert job at half of the rate that it reached: from the source to the end of the sink's write, as the
                    job's metrics have it

Medians with ranges, rates of each tenth of a run, and plots of our rate over the size of the table go to --out.
"""

import argparse
import csv
import datetime
import json
import os
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "e5"), os.path.join(HERE, "stores")]

from common import ROOT, TIDEMILL, bar, machine, run, say, shown, slices, table  # noqa: E402
from servers import STATES, STORES  # noqa: E402

JOBS = os.path.join(ROOT, "examples", "databases")
TENTHS = 10
# Rows of updates made before for the stores' own ways, which are slower.
OTHERS = 100_000
# E4's own figures, for the notes: inserts and updates a second.
E4 = {"MySQL 5.7": (3_400, 500), "SQL Server 2016": (55_000, 1_000), "Oracle 12c": (70_000, 20_000)}
# The bars: of the bulk path's rate, of one update at a time, of a thousand at a time; p99 in ms at half the rate.
BULK, SINGLY, THOUSANDS, LATENCY = 0.9, 20, 2, 100


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--stores", default=",".join(STORES))
    p.add_argument("--rows", type=int, default=10_000_000, help="events inserted")
    p.add_argument("--table", type=int, default=10_000_000, help="rows of the table that is updated")
    p.add_argument("--updates", type=int, default=1_000_000, help="updates of our job")
    p.add_argument("--seconds", type=float, default=15, help="how long single updates and the latency are measured")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--parallelism", type=int, default=1)
    p.add_argument("--checkpoints", action="store_true", help="insert with a state directory: exactly once")
    p.add_argument("--quick", action="store_true", help="small, to see that all of it works")
    p.add_argument("--work", help="a directory on the disk to be measured; needs some 5 KB a row in all, by default the system's")
    p.add_argument("--out", default=os.path.join(HERE, "runs", f"{datetime.date.today().isoformat()}-stores"))
    a = p.parse_args()
    if a.quick:
        a.rows, a.table, a.updates, a.seconds, a.rounds = 200_000, 200_000, 50_000, 2, 1
    return a


class Bench:
    def __init__(self, a, work):
        self.a, self.work = a, work
        self.cells, self.failures, self.samples = {}, [], {}
        self.events = self.file("events.csv", a.rows, 42, "'fields.event_id.kind' = 'sequence'")
        keys = f"'fields.event_id.min' = '0', 'fields.event_id.max' = '{a.table - 1}'"
        with open(self.file("updates.csv", min(a.updates, OTHERS), 44, keys), newline="") as lines:
            self.updates = [tuple(row) for row in csv.reader(lines)]

    def file(self, name, rows, seed, keys):
        """Events in one file of CSV."""
        say(f"{rows:,} events into {name}")
        folder = os.path.join(self.work, name + ".d")
        run(os.path.join(HERE, "stores", "events.sql"), {"EVENTS": rows, "SEED": seed, "KEYS": keys, "OUT": folder}, "--parallelism", "1")
        parts = sorted(f for f in os.listdir(folder) if not f.startswith("."))
        whole = os.path.join(self.work, name)
        with open(whole, "wb") as out:
            for part in parts:
                with open(os.path.join(folder, part), "rb") as piece:
                    while block := piece.read(1 << 24):
                        out.write(block)
                os.remove(os.path.join(folder, part))
        os.chmod(whole, 0o644)
        return whole

    def job(self, store, name, values, *more):
        return run(os.path.join(JOBS, name), {**store.values, **values}, "--parallelism", str(self.a.parallelism), *more)

    def note(self, store, what, value):
        self.cells.setdefault((store.name, what), []).append(value)

    def attempt(self, store, what, cell):
        try:
            cell()
            say(f"{store.name}, {what}: {shown(self.cells.get((store.name, what), []))}")
        except Exception as e:  # one cell that fails is told, and the others are measured
            self.failures.append(f"{store.name}, {what}: {e}")
            say(f"FAILED {self.failures[-1]}")

    def prepare(self, store):
        """The two tables, as our jobs create them; the one to be updated is filled."""
        self.job(store, "insert.sql", {"EVENTS": 1})
        say(f"{store.name}: filling a table of {self.a.table:,} rows")
        self.job(store, "fill.sql", {"ROWS": self.a.table})
        self.check(store, STATES, self.a.table)

    def check(self, store, name, rows):
        found = int(store.execute(f"SELECT COUNT(*) FROM {name}")[0][0])
        if found != rows:
            raise RuntimeError(f"{found} rows in {name} instead of {rows}")

    def insert(self, store, values=()):
        store.empty("process_events")
        state = tempfile.mkdtemp(dir=self.work, prefix="state-") if self.a.checkpoints else None
        return self.job(store, "insert.sql", {"EVENTS": self.a.rows, **dict(values)}, *(["--state-dir", state] if state else []))

    def insert_ours(self, store):
        done = self.insert(store)
        self.check(store, "process_events", self.a.rows)
        self.note(store, "insert", self.a.rows / done["wall_s"])
        self.note(store, "CPU µs", done["cpu_s"] / self.a.rows * 1e6)
        self.note(store, "peak MB", done["peak_mb"])
        self.note(store, "tenths", slices(done["samples"], self.a.rows, TENTHS))
        self.samples[store.name] = [sample[:2] for sample in done["samples"]]
        self.cells[(store.name, "bytes")] = [store.bytes("process_events")]

    def insert_bulk(self, store):
        store.empty("process_events")
        begun = time.monotonic()
        store.bulk(self.events, "process_events")
        took = time.monotonic() - begun
        self.check(store, "process_events", self.a.rows)
        self.note(store, "bulk", self.a.rows / took)

    def update_ours(self, store):
        done = self.job(store, "update.sql", {"EVENTS": self.a.updates, "LAST": self.a.table - 1, "SEED": len(self.cells) + 100})
        self.check(store, STATES, self.a.table)
        self.note(store, "update", self.a.updates / done["wall_s"])

    def latency(self, store):
        rate = int(statistics.median(self.cells[(store.name, "insert")]) / 2)
        done = self.insert(store, {"EVENTS": int(rate * self.a.seconds), "RATE": rate})
        self.note(store, "p50", done["latency_ms"]["p50"])
        self.note(store, "p99", done["latency_ms"]["p99"])

    def rounds(self, stores):
        for number in range(self.a.rounds):
            say(f"round {number + 1} of {self.a.rounds}")
            for store in stores:
                self.attempt(store, "insert", lambda: self.insert_ours(store))
                self.attempt(store, "bulk", lambda: self.insert_bulk(store))
                self.attempt(store, "update", lambda: self.update_ours(store))
                self.attempt(store, "singly", lambda: self.note(store, "singly", store.singly(self.updates, self.a.seconds)))
                self.attempt(store, "thousands", lambda: self.note(store, "thousands", store.thousands(self.updates)))
                if (store.name, "insert") in self.cells:
                    self.attempt(store, "p99", lambda: self.latency(store))

    def middle(self, store, what):
        values = self.cells.get((store.name, what))
        return statistics.median(values) if values else None

    def report(self, stores):
        get = lambda store, what, digits=0: shown(self.cells.get((store.name, what), []), digits)
        over = lambda store, a, b: (x / y if (x := self.middle(store, a)) and (y := self.middle(store, b)) else None)
        of = lambda ratio: "–" if ratio is None else f"{ratio:.2f}"
        a = self.a
        lines = [
            "# Stores: inserts and updates by key",
            "",
            f"{machine()} {a.rows:,} events of ten columns and about 180 bytes inserted into an empty table; {a.updates:,} updates in a table of",
            f"{a.table:,} rows; medians of {a.rounds} rounds, with ranges. Parallelism {a.parallelism}"
            + (", exactly once with checkpoints." if a.checkpoints else ", without checkpoints."),
            "",
            *table(
                ["store", "inserts/s", "its own bulk path", "ratio", "CPU µs an event", "peak MB", "bytes a row"],
                [[s.name, get(s, "insert"), get(s, "bulk"), of(over(s, "insert", "bulk")), get(s, "CPU µs", 2), get(s, "peak MB"),
                  f"{(self.middle(s, 'bytes') or 0) / a.rows:,.0f}"] for s in stores],
            ),
            "",
            *table(
                ["store", "updates/s", "one at a time", "times", "a thousand at a time", "times", "latency p50 ms", "p99 ms"],
                [[s.name, get(s, "update"), get(s, "singly"), of(over(s, "update", "singly")), get(s, "thousands"),
                  of(over(s, "update", "thousands")), get(s, "p50", 1), get(s, "p99", 1)] for s in stores],
            ),
            "",
            "Inserts a second by tenths of the run (median of the rounds), while the table grows:",
            "",
            *table(
                ["store", *(f"{10 * i} %" for i in range(1, TENTHS + 1))],
                [[s.name, *(f"{statistics.median(tenth):,.0f}" for tenth in zip(*self.cells.get((s.name, "tenths"), [])))] for s in stores],
            ),
            "",
            "The study's own figures, on other machines: "
            + "; ".join(f"{name} {inserts:,} inserts/s, {updates:,} updates/s" for name, (inserts, updates) in E4.items()) + ".",
            "",
        ]
        for s in stores:
            if (ratio := over(s, "insert", "bulk")) is not None:
                lines.append(bar(ratio >= BULK, f"{s.name}: inserts are {ratio:.0%} of its own bulk path (at least {BULK:.0%})"))
            if (ratio := over(s, "update", "singly")) is not None:
                lines.append(bar(ratio >= SINGLY, f"{s.name}: updates are {ratio:.1f} times one at a time (at least {SINGLY})"))
            if (ratio := over(s, "update", "thousands")) is not None:
                lines.append(bar(ratio >= THOUSANDS, f"{s.name}: updates are {ratio:.1f} times a thousand at a time (at least {THOUSANDS})"))
            if (p99 := self.middle(s, "p99")) is not None:
                lines.append(bar(p99 < LATENCY, f"{s.name}: p99 at half the rate is {p99:.1f} ms (below {LATENCY})"))
        lines += [""] * bool(self.failures) + [f"FAILED {failure}" for failure in self.failures]
        return "\n".join(lines) + "\n"


def plot(name, samples, rows, size):
    """Events a second over events in the table, as SVG; the second axis below is the table's size."""
    # Live figures are rounded: rates over at least a fortieth of the run.
    points, last = [], samples[0] if samples else (0, 0)
    for sample in samples:
        if sample[1] - last[1] >= rows / 40 and sample[0] > last[0]:
            points.append((sample[1], (sample[1] - last[1]) / (sample[0] - last[0])))
            last = sample
    if not points:
        return None
    width, height, left, bottom = 720, 320, 80, 60
    top = max(rate for _, rate in points) * 1.1
    x = lambda n: left + (width - left - 20) * n / rows
    y = lambda rate: height - bottom - (height - bottom - 30) * rate / top
    line = " ".join(f"{x(n):.1f},{y(rate):.1f}" for n, rate in points)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="18">{name}: events a second while the table grows</text>',
    ]
    for part in range(5):
        rate, n = top * part / 4, rows * part / 4
        parts.append(f'<line x1="{left}" y1="{y(rate):.1f}" x2="{width - 20}" y2="{y(rate):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:,.0f}</text>')
        parts.append(f'<text x="{x(n):.1f}" y="{height - bottom + 18}" text-anchor="middle">{n / 1e6:g} M rows</text>')
        parts.append(f'<text x="{x(n):.1f}" y="{height - bottom + 34}" text-anchor="middle">{size * part / 4 / 1e6:,.0f} MB</text>')
    parts.append(f'<polyline points="{line}" fill="none" stroke="#1664a5" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>\n"])


def main():
    a = options()
    if not os.path.exists(TIDEMILL):
        sys.exit(f"stores.py: there is no {TIDEMILL}; build it first, see --help")
    with tempfile.TemporaryDirectory(dir=a.work, prefix="stores-") as work:
        # The servers run as users of their own, who read the file of events.
        os.chmod(work, 0o755)
        stores = []
        try:
            for name in a.stores.split(","):
                try:
                    stores.append(STORES[name](work))
                except FileNotFoundError as e:
                    say(f"{name} is left out: {e} is not installed")
                except KeyError:
                    sys.exit(f"stores.py: there is no store '{name}'; there are {', '.join(STORES)}")
            bench = Bench(a, work)
            ready = []
            for store in stores:
                before = len(bench.failures)
                bench.attempt(store, "preparation", lambda: bench.prepare(store))
                if len(bench.failures) == before:
                    ready.append(store)
            bench.rounds(ready)
            os.makedirs(a.out, exist_ok=True)
            text = bench.report(ready)
            with open(os.path.join(a.out, "results.md"), "w") as out:
                out.write(text)
            cells = {f"{store}, {what}": values for (store, what), values in bench.cells.items()}
            with open(os.path.join(a.out, "results.json"), "w") as out:
                json.dump({"rows": a.rows, "table": a.table, "updates": a.updates, "cells": cells, "samples": bench.samples}, out, indent=1)
            for store in ready:
                size = bench.cells.get((store.name, "bytes"), [0])[0]
                if drawn := plot(store.name, bench.samples.get(store.name, []), a.rows, size):
                    with open(os.path.join(a.out, f"insert-{store.name.lower()}.svg"), "w") as out:
                        out.write(drawn)
            print(text)
        finally:
            for store in stores:
                try:
                    store.stop()
                except Exception as e:  # the figures are there already
                    say(f"stopping {store.name}: {e}")
    sys.exit(1 if bench.failures else 0)


if __name__ == "__main__":
    main()
