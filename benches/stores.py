#!/usr/bin/env python3
"""Experiment E4's store jobs: process-monitoring events into databases, and updates by key, on this machine.

  cargo build --release -p tidemill
  benches/stores.py [--stores sqlite,postgres,mariadb] [--rows 10000000] [--table 10000000] [--updates 1000000] [--quick]

Servers are started by this program, on files below --work, with the settings of their installation; a store that is not
installed (Debian's packages sqlite3, postgresql, mariadb-server) is said and left out. The program is what TIDEMILL names, or
what cargo has built. Python's standard library only, but for --stores duckdb, which is measured only if it is asked for: it wants
PyPI's duckdb in this Python, and for our jobs DuckDB's library, where the system finds it or where TIDEMILL_DUCKDB_LIBRARY says;
both best of the same version. What is measured, --rounds times, all cells in turn:

  insert            --rows events into an empty table: our job (examples/databases/insert.sql)
  bulk              the store's own bulk path with its own client (\\copy of psql, LOAD DATA LOCAL of mariadb, .import of
                    sqlite3, COPY by PyPI's duckdb) out of a file of CSV with the same events into the same table
  update            --updates events whose keys are chosen uniformly among those of a table of --table rows: our job
                    (examples/databases/update.sql)
  singly            one prepared UPDATE an event, each in its own transaction, for --seconds
  thousands         INSERT … ON CONFLICT (ON DUPLICATE KEY) statements of a thousand rows, of 100,000 events at most; in DuckDB,
                    where such a statement may take seconds, for 30 s at most
  insert p99, update p99, exactly once p99
                    our jobs for --latency-seconds at half of the rate that they reached, from a row's arrival in the process to
                    the commit: inserts committed as they come, updates, and inserts with a state directory
  prompt updates    where that of updates is 100 ms or more: the highest rate at which it is less, sought by halves. Half of the
                    best rate takes batches of several seconds, which share pages that a row alone would write for itself

Medians with ranges, rates of each tenth of a run, bars ("holds" or "FAILS"), and plots of rate and latency over time and over
the size of the table go to --out (benches/runs/DATE/stores). The exit code is 1 if a cell failed, whatever it measured.
"""

import argparse
import csv
import datetime
import json
import os
import stat
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "e5"), os.path.join(HERE, "stores")]

import plot  # noqa: E402
import report  # noqa: E402
from common import ROOT, TIDEMILL, run, say, shown, slices  # noqa: E402
from servers import BY_DEFAULT, EVENTS, STATES, STORES  # noqa: E402

JOBS = os.path.join(ROOT, "examples", "databases")
# The table of each job.
TABLES = {"insert.sql": EVENTS, "fill.sql": STATES, "update.sql": STATES}
# Rows of updates made before for the stores' own ways, which are slower.
OTHERS = 100_000
# A job at half of its rate that ends so much later than its last event was due did not keep it: a share, and seconds.
LATE_SHARE, LATE_S = 0.05, 2
# How many rates are tried for prompt updates.
PROMPT_TRIES = 6


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--stores", default=",".join(BY_DEFAULT), help=f"of {', '.join(STORES)}; by default %(default)s")
    p.add_argument("--rows", type=int, default=10_000_000, help="events inserted")
    p.add_argument("--table", type=int, help="rows of the table that is updated; by default as many as are inserted")
    p.add_argument("--updates", type=int, help="updates of our job; by default a tenth of them")
    p.add_argument("--seconds", type=float, default=15, help="how long single updates are measured")
    p.add_argument("--latency-seconds", type=float, default=30, help="how long each latency is measured")
    p.add_argument("--prompt-seconds", type=float, default=15, help="how long each rate of prompt updates is tried")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--parallelism", type=int, default=1)
    p.add_argument("--checkpoints", action="store_true", help="insert with a state directory: exactly once")
    p.add_argument("--interval-ms", type=int, default=50, help="between checkpoints, for the latency of exactly once")
    p.add_argument("--quick", action="store_true", help="small, to see that all of it works; other options go before")
    p.add_argument("--work", help="a directory on the disk to be measured; needs some 2 KB a row in all, by default the system's")
    p.add_argument("--out", default=os.path.join(HERE, "runs", datetime.date.today().isoformat(), "stores"))
    if "--quick" in sys.argv:
        p.set_defaults(rows=100_000, seconds=2, latency_seconds=3, prompt_seconds=3, rounds=1)
    a = p.parse_args()
    a.table = a.table or a.rows
    a.updates = a.updates or max(a.rows // 10, 1)
    return a


def fsync_us(folder):
    """The median time of writing 4 KB behind a file and making them safe, µs."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(100):
            begun = time.monotonic()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took.append((time.monotonic() - begun) * 1e6)
    return statistics.median(took)


class Bench:
    def __init__(self, a, work):
        self.a, self.work = a, work
        self.cells, self.failures = report.Cells(), []
        # Samples of the newest run of a store and cell.
        self.samples = {}
        # The seed of the newest events that update: others each time, since a row that is as it was costs some stores nothing.
        self.seed = 100
        # What every commit waits for; figures of updates one at a time say little without it.
        self.fsync_us = fsync_us(work)
        self.events = self.file("events.csv", a.rows, 42, "'fields.event_id.kind' = 'sequence'")

    def file(self, name, rows, seed, keys):
        """Events in one file of CSV."""
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

    def updates(self):
        """Events that update, for the stores' own ways."""
        self.seed += 1
        keys = f"'fields.event_id.min' = '0', 'fields.event_id.max' = '{self.a.table - 1}'"
        file = self.file("updates.csv", min(self.a.updates, OTHERS), self.seed, keys)
        with open(file, newline="") as lines:
            return [tuple(row) for row in csv.reader(lines)]

    def job(self, store, name, values, *more):
        values = {**store.values(TABLES[name]), **values}
        return run(os.path.join(JOBS, name), values, "--parallelism", str(self.a.parallelism), *more)

    def note(self, store, what, value):
        self.cells.note(store.name, what, value)

    def attempt(self, store, what, cell):
        # What the cell before has left to be written is not this one's.
        os.sync()
        try:
            cell()
            figures = self.cells.get(store.name, what)
            say(f"{store.name}, {what}" + (f": {shown(figures, 1)}" if figures else ""))
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
        found = int(store.execute(f"SELECT COUNT(*) FROM {name}", name)[0][0])
        if found != rows:
            raise RuntimeError(f"{found} rows in {name} instead of {rows}")

    def insert(self, store, events, keep, *more, **values):
        """Our job into an empty table; with `keep` it has a state directory."""
        store.empty(EVENTS)
        with tempfile.TemporaryDirectory(dir=self.work, prefix="state-") as state:
            done = self.job(store, "insert.sql", {"EVENTS": events, **values}, *(["--state-dir", state] if keep else []), *more)
        self.check(store, EVENTS, events)
        return done

    def insert_ours(self, store):
        done = self.insert(store, self.a.rows, self.a.checkpoints)
        self.note(store, "insert", self.a.rows / done["wall_s"])
        self.note(store, "CPU µs", done["cpu_s"] / self.a.rows * 1e6)
        self.note(store, "peak MB", done["peak_mb"])
        # The live line is written five times a second: fewer lines say nothing of tenths.
        if len(done["samples"]) >= 4 * report.TENTHS:
            self.note(store, "tenths", slices(done["samples"], self.a.rows, report.TENTHS))
        self.note(store, "bytes", store.bytes(EVENTS))
        self.samples[store.name, "insert"] = done["samples"]

    def insert_bulk(self, store):
        store.empty(EVENTS)
        begun = time.monotonic()
        store.bulk(self.events, EVENTS)
        took = time.monotonic() - begun
        self.check(store, EVENTS, self.a.rows)
        self.note(store, "bulk", self.a.rows / took)

    def update(self, store, events, **values):
        self.seed += 1
        done = self.job(store, "update.sql", {"EVENTS": events, "LAST": self.a.table - 1, "SEED": self.seed, **values})
        self.check(store, STATES, self.a.table)
        return done

    def update_ours(self, store):
        done = self.update(store, self.a.updates)
        self.note(store, "update", self.a.updates / done["wall_s"])
        self.samples[store.name, "update"] = done["samples"]

    def latency(self, store, what, of, job):
        """`job` at half of the rate that the cell `of` has reached; it gets a number of events and a rate."""
        rate = int(self.cells.middle(store.name, of) / 2)
        events = max(int(rate * self.a.latency_seconds), 1)
        done = job(events, rate)
        due = events / rate
        if done["wall_s"] > due * (1 + LATE_SHARE) + LATE_S:
            raise RuntimeError(f"{events:,} events at {rate:,}/s took {done['wall_s']:.1f} s instead of {due:.1f}: the rate was not kept")
        for quantile in ("p50", "p99"):
            self.note(store, f"{what} {quantile}", done["latency_ms"][quantile])
        self.samples[store.name, f"{what} half"] = done["samples"]

    def latencies(self, store):
        interval = ["--set", f"execution.checkpointing.interval={self.a.interval_ms}ms"]
        jobs = {
            "insert": ("insert", lambda events, rate: self.insert(store, events, False, RATE=rate)),
            "exactly once": ("insert", lambda events, rate: self.insert(store, events, True, *interval, RATE=rate)),
            "update": ("update", lambda events, rate: self.update(store, events, RATE=rate)),
        }
        for what, (of, job) in jobs.items():
            if self.cells.get(store.name, of):
                self.attempt(store, f"{what} p99", lambda: self.latency(store, what, of, job))

    def prompt_updates(self, store):
        """The highest rate of updates that was found at which their p99 is below the bar's; also where half of the best rate was not kept."""
        best, p99 = (self.cells.middle(store.name, what) for what in ("update", "update p99"))
        if best is None or p99 is not None and p99 < report.LATENCY_MS:
            return
        keeps, fails = (0, None), int(best / 2)
        for _ in range(PROMPT_TRIES):
            rate = (keeps[0] + fails) // 2
            done = self.update(store, max(int(rate * self.a.prompt_seconds), 1), RATE=rate)
            p99 = done["latency_ms"]["p99"]
            say(f"{store.name}, {rate:,} updates/s: p99 {p99:.1f} ms")
            if p99 < report.LATENCY_MS:
                keeps = (rate, p99)
            else:
                fails = rate
        if not keeps[0]:
            raise RuntimeError(f"no rate down to {fails:,}/s has a p99 below {report.LATENCY_MS} ms")
        self.note(store, "prompt updates", keeps[0])
        self.note(store, "prompt updates p99", keeps[1])

    def rounds(self, stores):
        for number in range(self.a.rounds):
            say(f"round {number + 1} of {self.a.rounds}")
            for store in stores:
                self.attempt(store, "insert", lambda: self.insert_ours(store))
                self.attempt(store, "bulk", lambda: self.insert_bulk(store))
                self.attempt(store, "update", lambda: self.update_ours(store))
                self.attempt(store, "singly", lambda: self.note(store, "singly", store.singly(self.updates(), self.a.seconds)))
                self.attempt(store, "thousands", lambda: self.note(store, "thousands", store.thousands(self.updates())))
                self.latencies(store)
                self.attempt(store, "prompt updates", lambda: self.prompt_updates(store))

    def keep(self, stores):
        """Writes page, figures and plots; the page."""
        os.makedirs(self.a.out, exist_ok=True)
        plots = {}
        for store in stores:
            name, of = store.name, lambda what: self.samples.get((store.name, what), [])
            size = self.cells.middle(name, "bytes") or 0
            plots[f"insert-{name.lower()}.svg"] = plot.of_insert(name, of("insert"), of("insert half"), self.a.rows, size)
            plots[f"update-{name.lower()}.svg"] = plot.of_update(name, of("update"), of("update half"), self.a.updates)
        files = {name: drawn for name, drawn in plots.items() if drawn}
        text = report.page(self.a, self.cells, stores, self.failures, list(files), self.fsync_us)
        figures = {
            **{name: getattr(self.a, name) for name in ("rows", "table", "updates", "rounds", "parallelism", "checkpoints")},
            "fsync_us": self.fsync_us,
            "cells": {f"{store}, {what}": values for (store, what), values in self.cells.all.items()},
            "samples": {f"{store}, {what}": samples for (store, what), samples in self.samples.items()},
        }
        files |= {"results.md": text, "results.json": json.dumps(figures) + "\n"}
        for name, content in files.items():
            with open(os.path.join(self.a.out, name), "w") as out:
                out.write(content)
        return text


def closed(folder):
    """The first directory on the way to a folder that other users may not enter; None if there is none."""
    way = [folder]
    while way[-1] != os.path.dirname(way[-1]):
        way.append(os.path.dirname(way[-1]))
    return next((part for part in reversed(way) if not os.stat(part).st_mode & stat.S_IXOTH), None)


def main():
    a = options()
    if not os.path.exists(TIDEMILL):
        sys.exit(f"stores.py: there is no {TIDEMILL}; build it first, see --help")
    if unknown := [name for name in a.stores.split(",") if name not in STORES]:
        sys.exit(f"stores.py: there is no store '{unknown[0]}'; there are {', '.join(STORES)}")
    with tempfile.TemporaryDirectory(dir=a.work, prefix="stores-") as work:
        # The servers run as users of their own, who read the file of events.
        os.chmod(work, 0o755)
        if os.geteuid() == 0 and (part := closed(os.path.realpath(work))):
            sys.exit(f"stores.py: the servers run as users of their own, who may not enter {part}; give another directory with --work")
        stores = []
        try:
            for name in a.stores.split(","):
                try:
                    stores.append(STORES[name](work))
                except FileNotFoundError as e:
                    say(f"{name} is left out: {e} is not installed")
            if not stores:
                sys.exit("stores.py: there is nothing to measure")
            bench = Bench(a, work)
            ready = []
            for store in stores:
                before = len(bench.failures)
                bench.attempt(store, "preparation", lambda: bench.prepare(store))
                if len(bench.failures) == before:
                    ready.append(store)
            bench.rounds(ready)
            print(bench.keep(ready))
        finally:
            for store in stores:
                try:
                    store.stop()
                except Exception as e:  # the figures are there already
                    say(f"stopping {store.name}: {e}")
    sys.exit(1 if bench.failures else 0)


if __name__ == "__main__":
    main()
