#!/usr/bin/env python3
"""Experiment E2: a table of 113 columns read and written in many formats, on this machine. Python's standard library only.

  cargo build --release -p tidemill
  cargo build --release -p tidemill-store --features emulator --example bucket
  benches/e2.py [--rows 40000] [--rounds 3] [--formats csv,parquet] [--places local,bucket] [--actions read] [--peers none] [--quick]

The table (see files/sales.py) is made once, by our own engine, and kept in --work; the study's 576,000 rows are 14 GB of CSV.

  read      all columns are decoded, numbers summed, letters counted; of SAS files: all columns are read and thrown away
  write     the table is read from its Parquet file and written: serial one file, parallel a file for each shard
  serial    one shard, one thread; parallel: as many as there are processors; at once: serial, in as many processes at the same time,
            each with a copy of the file, so that none finds in the processor's cache what another has fetched: the most that the
            machine's memory gives
  start     a file of one row (of SAS: the small file) read, one row written: what a process takes besides
  local     from the page cache; bucket: Google Cloud Storage as the project's emulator has it, which answers after --latency-ms
            and gives --connection-mb MB a second on a connection, --bandwidth-mb on all; it takes a part of the processors
  SAS       sas7bdat is SASHELP.PRDSALE out of pandas' test data (--sas-data), made --sas-mb MB large, by default about as large as the
            CSV, so that its MB/s and its memory can be put beside those of others; xport has --sas-rows rows of the table with texts of
            200 characters

DuckDB and Polars read and write the same local files, pandas and pyreadstat read the SAS files; seconds of theirs are those of the work
alone, without the start of Python; ours are those of the whole process. What is not installed is left out, and said.

Environment: TIDEMILL (the program), RUNS (--rounds), PYTHON (a Python with duckdb and polars), SAS_PYTHON (one with pandas and
pyreadstat; by default the same). Medians with ranges, CPU, memory, bars and the cost of a month go to standard output and, with a plot, to
benches/runs/DATE/e2.txt and e2.svg. The exit code is 1 if a cell failed, whatever it measured.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import shutil
import signal
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "e5"), os.path.join(HERE, "files")]

from common import RELEASE, ROOT, TIDEMILL, bar, machine, needs, say, shown, table  # noqa: E402
from measure import Absent, Cells, Ended, bars, below, drop, importable, job, measured, plain, server, size, warm  # noqa: E402
from peers import ABSENT  # noqa: E402
from sales import COLUMNS, grown, short  # noqa: E402

JOBS = os.path.join(HERE, "jobs")
EMULATOR = os.path.join(RELEASE, "examples", "bucket")
# The formats, and the extensions of their files.
PLAIN = ("csv", "parquet", "arrow", "avro", "orc", "json")
FORMATS = {form: form for form in PLAIN} | {"xport": "xpt", "sas7bdat": "sas7bdat"}
SAS = ("xport", "sas7bdat")
PLACES = ("local", "bucket")
ACTIONS = ("read", "write")
MODES = ("serial", "parallel")
# How a cell is called in which each processor has a serial process of its own.
AT_ONCE = f"{os.cpu_count()} at once"
PEERS = ("duckdb", "polars", "pandas", "pyreadstat")
CORES = os.cpu_count()
# The bars.
BESIDE_PEERS, PANDAS, PYREADSTAT, PARALLEL, MEMORY_MB = ("csv", "parquet", "arrow"), 10, 3, 1.8, 1024
# Of what processes do that have nothing to do with each other, where not even they reach PARALLEL: there memory is the limit.
NEAR = 0.95
# What another engine, or another order of rows, may differ by in a sum of floating-point numbers.
CLOSE = 1e-9
# The month of the study's cost line: 2,560 GB as CSV, two million operations.
MONTH_GB, OPERATIONS = 2_560, 1_000_000


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    p.add_argument("--work", default=os.path.join(cache, "tidemill-benches"), help="where the files are kept, on the disk to be measured")
    p.add_argument("--rows", type=int, default=40_000)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--rounds", type=int, default=int(os.environ.get("RUNS", "3")))
    p.add_argument("--formats", default=",".join(FORMATS))
    p.add_argument("--places", default=",".join(PLACES))
    p.add_argument("--actions", default=",".join(ACTIONS))
    p.add_argument("--peers", default=",".join(PEERS), help="the other engines; none where it says so")
    p.add_argument("--latency-ms", type=int, default=30)
    p.add_argument("--bandwidth-mb", type=int, default=400)
    p.add_argument("--connection-mb", type=int, default=50)
    p.add_argument("--sas-data", default=os.path.join(ROOT, "..", "shared", "data", "sas", "pandas", "productsales.sas7bdat"))
    p.add_argument("--sas-mb", type=float, default=1_000)
    p.add_argument("--sas-rows", type=int, default=5_000)
    p.add_argument("--python", default=os.environ.get("PYTHON", "python3"))
    p.add_argument("--sas-python", default=os.environ.get("SAS_PYTHON", os.environ.get("PYTHON", "python3")))
    p.add_argument("--quick", action="store_true", help="small and once, to see that all of it works")
    p.add_argument("--out", default=os.path.join(HERE, "runs", datetime.date.today().isoformat()))
    a = p.parse_args()
    if a.quick:
        a.rows, a.sas_rows, a.sas_mb, a.rounds = 1_000, 200, 1, 1
    for name, known in (("formats", FORMATS), ("places", PLACES), ("actions", ACTIONS), ("peers", PEERS)):
        chosen = [part.strip() for part in getattr(a, name).split(",") if (name, part.strip()) != ("peers", "none")]
        if unknown := [part for part in chosen if part not in known]:
            p.error(f"--{name}: there is no {unknown[0]!r}; there are {', '.join(known)}")
        setattr(a, name, chosen)
    return a


def at_once(runs):
    """These runs at the same time, as one that ends with the last of them."""
    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
        runs = [done.result() for done in [pool.submit(run) for run in runs]]
    first = runs[0]
    first.seconds, first.cpu_s = time.perf_counter() - begun, sum(done.cpu_s for done in runs)
    return first


def shards(mode):
    return 1 if mode == "serial" else CORES


class Bench:
    def __init__(self, a):
        self.a, self.cells, self.expect, self.lacking = a, Cells(say), None, {}
        self.folder = os.path.join(a.work, f"e2-{a.rows}-{a.sas_rows}-{a.sas_mb:g}-{a.seed}")
        self.source = self.path("parquet")
        self.peers = self.installed()
        self.rows = {form: a.rows for form in FORMATS} | {"xport": min(a.sas_rows, a.rows)}

    def path(self, form):
        return os.path.join(self.folder, form, f"table.{FORMATS[form]}")

    def copies(self, form):
        """A file for each processor, the table's own and others like it."""
        folder = os.path.join(self.folder, f"{form}.copies")
        return [self.path(form), *(os.path.join(folder, f"{number}.{FORMATS[form]}") for number in range(1, CORES))]

    def smallest(self, form):
        """A file of one row; of SAS the one that was made larger."""
        return self.a.sas_data if form == "sas7bdat" else os.path.join(self.folder, f"{form}.smallest", f"table.{FORMATS[form]}")

    def installed(self):
        """The other engines that there are."""
        engines = {"duckdb": self.a.python, "polars": self.a.python}
        if any(form in SAS for form in self.a.formats):
            engines |= {"pandas": self.a.sas_python, "pyreadstat": self.a.sas_python}
        engines = {engine: python for engine, python in engines.items() if engine in self.a.peers}
        found = [engine for engine, python in engines.items() if importable(python, engine)]
        for engine in engines.keys() - set(found):
            self.lacking[engine] = "it cannot be imported: PYTHON and SAS_PYTHON, or --python and --sas-python"
        return found

    # The files.

    def prepare(self):
        """Makes the files that are not there; a format that cannot be written is left out, and that is told as a failure."""
        self.made("parquet", lambda out: job(os.path.join(JOBS, "e2-make.sql"), {"ROWS": self.a.rows, "SEED": self.a.seed, "OUT": out}, 1))
        done = job(os.path.join(JOBS, "e2-read.sql"), {"FILES": self.source}, CORES)
        self.expect = self.found(done)
        for form in self.a.formats:
            try:
                if form == "sas7bdat":
                    self.sas()
                elif form != "parquet":
                    self.made(form, lambda out: job(os.path.join(JOBS, "e2-write.sql"), self.values(form, out), CORES))
                if "local" in self.a.places and self.is_compared("read", form):
                    self.compared(form)
            except Absent as e:
                self.lacking[form] = str(e)
            except (RuntimeError, OSError) as e:
                self.cells.failures.append(f"making {form}: {e}")
                say(f"FAILED {self.cells.failures[-1]}")
                self.lacking[form] = "its file could not be made"
        self.a.formats = [form for form in self.a.formats if form not in self.lacking]

    def made(self, form, make):
        """A file, under its name when it is whole."""
        path = self.path(form)
        if os.path.exists(path):
            return
        say(f"making {form}")
        folder = os.path.join(self.folder, f"{form}.making")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        make(os.path.join(folder, os.path.basename(path)))
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        os.rename(folder, os.path.dirname(path))

    def compared(self, form):
        """What parallel reading of a file is compared with: copies of it and a file of one row. How a file lies in the page cache
        depends on who wrote it, and how fast it is read on that: all are fetched anew."""
        for path in self.copies(form)[1:]:
            if not os.path.exists(path):
                say(f"copying {form}")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                shutil.copyfile(self.path(form), f"{path}.making")
                os.rename(f"{path}.making", path)
        if not os.path.exists(smallest := self.smallest(form)):
            os.makedirs(os.path.dirname(smallest), exist_ok=True)
            job(os.path.join(JOBS, "e2-write.sql"), self.values(form, smallest) | {"LIMIT": " LIMIT 1"}, 1)
        drop(self.copies(form))

    def sas(self):
        """PRDSALE made larger; how many rows it has is kept beside it."""
        if not os.path.exists(self.a.sas_data):
            raise Absent("there is no SAS file to read: --sas-data")

        def make(out):
            rows = grown(self.a.sas_data, out, self.a.sas_mb)
            with open(out + ".rows", "w") as file:
                file.write(str(rows))

        self.made("sas7bdat", make)
        with open(self.path("sas7bdat") + ".rows") as file:
            self.rows["sas7bdat"] = int(file.read())

    def values(self, form, out):
        """The definitions of the job that writes."""
        values = {"FILES": self.source, "OUT": out, "FORMAT": form}
        if form == "xport":
            values |= {"COLUMNS": short(), "LIMIT": f" LIMIT {self.rows[form]}"}
        return values

    # What must come out.

    def found(self, done):
        return [float(value) for value in done.out.strip().split(",")]

    def same(self, found):
        """None if these are the numbers of the table, else what is wrong."""
        near = all(abs(x - y) <= CLOSE * abs(y) for x, y in zip(found, self.expect, strict=True))
        return None if near else f"{found} instead of {self.expect}"

    def counted(self, form, rows):
        return None if rows == self.rows[form] else f"{rows:,} rows instead of {self.rows[form]:,}"

    # Ours.

    def read(self, form, files, mode, **how):
        """A run that reads, and its check."""
        name = "e2-all.sql" if form in SAS else "e2-read.sql"
        run = lambda: job(os.path.join(JOBS, name), {"FILES": files}, shards(mode), **how)
        check = (lambda done: self.counted(form, done.summary["rows_in"])) if form in SAS else (lambda done: self.same(self.found(done)))
        return run, check

    def write(self, form, folder, mode, more=None, **how):
        """A run that writes below `folder`, and its check; with `more` definitions for the job."""
        out = f"{folder}/table.{FORMATS[form]}" if mode == "serial" else f"{folder}/parts"
        run = lambda: job(os.path.join(JOBS, "e2-write.sql"), self.values(form, out) | (more or {}), shards(mode), **how)
        return run, lambda done: self.counted(form, done.summary["rows_out"])

    def modes(self, direction, form):
        """XPORT is one file by nature, which one writes after the other."""
        return ("serial",) if (direction, form) == ("write", "xport") else MODES

    def is_compared(self, direction, form):
        """Whether parallel over serial is a bar."""
        return form in BESIDE_PEERS or (direction, form) == ("read", "sas7bdat")

    def scratch(self):
        """An empty directory to write into."""
        folder = os.path.join(self.a.work, f"written-{os.getpid()}")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        return folder

    def local(self, form):
        if "read" in self.a.actions:
            # One right after the other: the machine may be slower a minute later.
            for mode in self.modes("read", form):
                # Each time: pandas takes so much memory that what is cached has to go.
                warm([self.path(form)])
                self.cells.attempt(f"read {form} local {mode}, tidemill", *self.read(form, self.path(form), mode))
            if self.is_compared("read", form):
                warm(self.copies(form))
                runs, checks = zip(*(self.read(form, path, "serial") for path in self.copies(form)), strict=True)
                self.cells.attempt(f"read {form} local serial {AT_ONCE}, tidemill", lambda: at_once(runs), checks[0])
                run, _ = self.read(form, self.smallest(form), "serial")
                self.cells.attempt(f"start read {form} local serial, tidemill", run, lambda _: None)
            for mode in self.modes("read", form):
                for engine in ("pandas", "pyreadstat") if form in SAS else ("duckdb", "polars"):
                    if form not in SAS or mode == "serial":
                        warm([self.path(form)])
                        self.peer(engine, "read", form, mode)
        if form == "sas7bdat" or "write" not in self.a.actions:
            return
        for mode in self.modes("write", form):
            for engine in ("tidemill",) if form in SAS else ("tidemill", "duckdb", "polars"):
                folder = self.scratch()
                warm([self.source])
                try:
                    if engine == "tidemill":
                        self.cells.attempt(f"write {form} local {mode}, tidemill", *self.write(form, folder, mode))
                    else:
                        self.peer(engine, "write", form, mode, os.path.join(folder, f"table.{FORMATS[form]}"))
                finally:
                    shutil.rmtree(folder)

        if self.is_compared("write", form):
            self.written_at_once(form)

    def written_at_once(self, form):
        """A serial process for each processor, each with a table of its own to read, and one that writes one row."""
        sources = self.copies("parquet")
        sources = sources if all(map(os.path.exists, sources)) else [self.source] * CORES
        folder = self.scratch()
        warm(sources)
        try:
            runs, checks = [], []
            for number, source in enumerate(sources):
                os.mkdir(into := os.path.join(folder, str(number)))
                run, check = self.write(form, into, "serial", {"FILES": source})
                runs.append(run)
                checks.append(check)
            self.cells.attempt(f"write {form} local serial {AT_ONCE}, tidemill", lambda: at_once(runs), checks[0])
            os.mkdir(into := os.path.join(folder, "start"))
            run, _ = self.write(form, into, "serial", {"LIMIT": " LIMIT 1"})
            self.cells.attempt(f"start write {form} local serial, tidemill", run, lambda _: None)
        finally:
            shutil.rmtree(folder)

    def peer(self, engine, action, form, mode, target=None):
        """A run of another engine, if it is installed."""
        if engine not in self.peers:
            return
        name = f"{action} {form} local {mode}, {engine}"
        python = self.a.sas_python if form in SAS else self.a.python
        paths = [self.path(form)] if action == "read" else [self.source, target]
        command = [python, os.path.join(HERE, "files", "peers.py"), engine, action, form, *paths, str(shards(mode))]

        def run():
            try:
                done = measured(command)
            except Ended as e:
                if e.code == ABSENT:
                    raise Absent(str(e).splitlines()[-1]) from e
                raise
            told = json.loads(done.out.splitlines()[-1])
            done.seconds, done.cpu_s, done.summary = told["seconds"], told["cpu_s"], told
            return done

        def check(done):
            if action == "write":
                return None if size(below(os.path.dirname(target))) else "nothing was written"
            return self.counted(form, int(done.summary["found"][0])) if form in SAS else self.same(done.summary["found"])

        self.cells.attempt(name, run, check)

    def bucket(self, form):
        """Each run has a bucket of its own: what it holds is in the emulator's memory."""
        if not os.path.exists(EMULATOR):
            raise Absent(f"{os.path.basename(EMULATOR)}, the emulated bucket, is not built, see --help")
        a = self.a
        slow = ["--latency-ms", str(a.latency_ms), "--bandwidth-mb", str(a.bandwidth_mb), "--connection-mb", str(a.connection_mb)]
        for mode in self.modes("read", form) if "read" in a.actions else ():
            with server([EMULATOR, *slow, "--load", f"bench={os.path.dirname(self.path(form))}"]) as address:
                run, check = self.read(form, f"gs://bench/table.{FORMATS[form]}", mode, env={"STORAGE_EMULATOR_HOST": address})
                self.cells.attempt(f"read {form} bucket {mode}, tidemill", run, check)
        if form == "sas7bdat" or "write" not in a.actions:
            return
        warm([self.source])
        for mode in self.modes("write", form):
            with server([EMULATOR, *slow]) as address:
                run, check = self.write(form, "gs://bench/out", mode, env={"STORAGE_EMULATOR_HOST": address})
                self.cells.attempt(f"write {form} bucket {mode}, tidemill", run, check)

    # What is told.

    def report(self):
        a, cells = self.a, self.cells
        rows = lambda form: f" ({self.rows[form]:,} rows)" if form in SAS else ""
        sizes = [f"{form} {size([self.path(form)]) / 1e6:,.0f} MB{rows(form)}" for form in a.formats]
        lines = [
            "E2: a table of 113 columns, by format, place and way",
            "",
            machine(),
            f"{a.rows:,} rows of {COLUMNS} columns: {', '.join(sizes)}. Medians of {a.rounds} rounds.",
            f"The bucket answers after {a.latency_ms} ms, {a.connection_mb} MB/s a connection, {a.bandwidth_mb} MB/s in all.",
            "What is written is read from the Parquet file.",
            "Seconds of ours are those of the whole process, of others without their start. Memory is the most of any round.",
            "",
        ]
        for direction in ("read", "write"):
            ours = ["tidemill s", "CPU s", "peak MB", "MB/s"]
            head = [direction, "place", "way", *ours, *(f"{engine} s" for engine in PEERS), "best / ours"]
            lines += [*table(head, list(self.table(direction))), ""]
        lines += [*self.bars(), "", *self.cost(), ""]
        lines += [f"left out: {name}: {why}" for name, why in (self.lacking | cells.absent).items()]
        lines += [f"FAILED {failure}" for failure in cells.failures]
        return "\n".join(lines) + "\n"

    def table(self, direction):
        for form in self.a.formats:
            for place in self.a.places:
                for mode in MODES:
                    cell = f"{direction} {form} {place} {mode}"
                    runs = self.cells.done.get(f"{cell}, tidemill")
                    if not runs:
                        continue
                    middle = self.cells.seconds(f"{cell}, tidemill")
                    peak = max(r.peak_mb for r in runs)
                    ours = [shown([r.seconds for r in runs], 2), shown([r.cpu_s for r in runs], 2), f"{peak:,.0f}"]
                    rate = size([self.path(form)]) / middle / 1e6
                    others = [self.cells.seconds(f"{cell}, {engine}") for engine in PEERS]
                    best = min((s for s in others if s), default=None)
                    beside = ["–" if s is None else f"{s:.2f}" for s in others]
                    yield [form, place, mode, *ours, f"{rate:,.0f}", *beside, "–" if best is None else f"{best / middle:.2f}"]

    def bars(self):
        cells, told = self.cells, []
        for direction in ("read", "write"):
            for form in BESIDE_PEERS:
                cell = f"{direction} {form} local parallel"
                ours, others = cells.seconds(f"{cell}, tidemill"), [cells.seconds(f"{cell}, {engine}") for engine in ("duckdb", "polars")]
                best = min((s for s in others if s), default=None)
                if ours and best:
                    text = f"{direction} {form}: {best / ours:.2f} times as fast as the better of DuckDB and Polars (at least 1)"
                    told.append(bar(ours <= best, text))
        for engine, least in (("pandas", PANDAS), ("pyreadstat", PYREADSTAT)):
            if value := cells.ratio(f"read sas7bdat local serial, {engine}", "read sas7bdat local parallel, tidemill"):
                told.append(bar(value >= least, f"read sas7bdat: {value:.1f} times as fast as {engine} (at least {least})"))
        for direction in ("read", "write"):
            for form in self.a.formats:
                for place in self.a.places:
                    cell = f"{direction} {form} {place}"
                    if not (value := cells.ratio(f"{cell} serial, tidemill", f"{cell} parallel, tidemill")):
                        continue
                    text = f"{cell}: parallel {value:.2f} times as fast as serial"
                    if place == "local" and self.is_compared(direction, form):
                        told.append(self.compared_bar(cell, value))
                    else:
                        told.append(f"- {text}")
        if value := cells.ratio("read csv bucket parallel, tidemill", "read parquet bucket parallel, tidemill"):
            told.append(bar(value >= 1, f"Parquet from the bucket in parallel: {value:.2f} times as fast as CSV (at least 1)"))
        peaks = {name: cells.peak(name) for name in cells.done if name.endswith("tidemill")}
        if peaks:
            most = max(peaks, key=peaks.get)
            told.append(bar(peaks[most] < MEMORY_MB, f"memory: {peaks[most]:,.0f} MB at most, in '{most}' (below {MEMORY_MB:,})"))
        return told

    def compared_bar(self, cell, value):
        """Parallel over serial; where not even processes that share nothing are so much faster, how near it comes to them, each
        without its start: a job of several shards starts once, before all of them, and they at the same time."""
        seconds = lambda cell: self.cells.seconds(f"{cell}, tidemill")
        together, start = seconds(f"{cell} serial {AT_ONCE}"), seconds(f"start {cell} serial")
        text = f"{cell}: parallel {value:.2f} times as fast as serial (at least {PARALLEL}"
        if value >= PARALLEL or not together or not start or (most := CORES * seconds(f"{cell} serial") / together) >= PARALLEL:
            return bar(value >= PARALLEL, f"{text})")
        near = (together - start) / CORES / (seconds(f"{cell} parallel") - start)
        text += f", but {CORES} processes with files of their own do only {most:.2f} times as much as one: memory is the limit; "
        return bar(near >= NEAR, f"{text}without the start of {start:.2f} s {near:.2f} times as fast as they, at least {NEAR})")

    def cost(self):
        """The month of the study, for these formats: what is 2,560 GB as CSV is less in others."""
        csv = self.path("csv")
        if not os.path.exists(csv):
            return []
        scale = MONTH_GB * (1 << 30) / size([csv])
        command = [TIDEMILL, "capacity", "cost", "--class-a", str(OPERATIONS), "--class-b", str(OPERATIONS)]
        for form in self.a.formats:
            if form not in SAS:
                command += ["--stored", f"{form}={int(size([self.path(form)]) * scale)}"]
        try:
            bill = measured(command).out.splitlines()
            return [f"A month of what is {MONTH_GB:,} GB as CSV, two million operations (tidemill capacity cost):", "", *bill]
        except RuntimeError as e:
            self.cells.failures.append(f"capacity cost: {e}")
            return []

    def plot(self):
        rows, group = [], None
        for name in sorted(self.cells.done):
            cell = name.split(",")[0]
            if cell.startswith("start") or (not cell.endswith("parallel") and cell.split()[1] not in SAS):
                continue
            rows += [None] if group not in (None, cell) else []
            group = cell
            rows.append((name, self.cells.seconds(name), name.endswith("tidemill")))
        return bars("E2: seconds, medians", rows)


def main():
    a = options()
    needs(TIDEMILL)
    # Whoever stops this stops what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("e2.py: stopped"))
    os.makedirs(a.work, exist_ok=True)
    bench = Bench(a)
    try:
        bench.prepare()
    except (RuntimeError, OSError) as e:
        sys.exit(f"e2.py: making the table: {e}")
    for number in range(a.rounds):
        say(f"round {number + 1} of {a.rounds}")
        for form in a.formats:
            for place in a.places:
                # A place that cannot be had shall not lose the others.
                try:
                    getattr(bench, place)(form)
                except Absent as e:
                    bench.lacking[place] = str(e)
                except (OSError, RuntimeError) as e:
                    bench.cells.failures.append(f"{form}, {place}: {e}")
                    say(f"FAILED {bench.cells.failures[-1]}")
    os.makedirs(a.out, exist_ok=True)
    text = plain(bench.report(), a.work, ROOT)
    with open(os.path.join(a.out, "e2.txt"), "w") as file:
        file.write(text)
    with open(os.path.join(a.out, "e2.svg"), "w") as file:
        file.write(bench.plot())
    print(text)
    sys.exit(1 if bench.cells.failures else 0)


if __name__ == "__main__":
    main()
