#!/usr/bin/env python3
"""One measured run of another engine, in a process of its own: DuckDB, Polars, pandas, pyreadstat.

  peers.py ENGINE read FORMAT PATH THREADS
  peers.py ENGINE write FORMAT PARQUET TARGET THREADS
  peers.py duckdb group GLOB THREADS

Prints JSON: seconds and CPU seconds of the work alone, without the start of Python and the import, and what it found. Ends
with 3 if the engine, or a part of it, is not installed or does not know the format."""

import json
import os
import resource
import sys
import time

sys.dont_write_bytecode = True

from sales import DATES, NUMBERS, TEXTS, WHOLE  # noqa: E402

ABSENT = 3


class Unknown(Exception):
    """A format that the engine does not have."""


def literal(text):
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


class Duckdb:
    SOURCES = {"csv": "read_csv({})", "parquet": "read_parquet({})", "json": "read_json({})", "avro": "read_avro({})"}

    def __init__(self, threads):
        import duckdb

        self.duckdb, self.db = duckdb, duckdb.connect()
        self.db.execute(f"SET threads = {threads}")
        # Faster, and no engine here keeps the order of rows.
        self.db.execute("SET preserve_insertion_order = false")
        self.parallel = threads > 1

    def prepare(self, form):
        if form not in self.SOURCES:
            raise Unknown
        if form == "avro":
            try:
                self.db.execute("LOAD avro")
            except self.duckdb.Error as e:
                raise Unknown from e

    def read(self, form, path):
        sums = [f'SUM("{name}")' for name in NUMBERS + WHOLE]
        letters = [f'SUM(length("{name}"))' for name in TEXTS]
        dates = [f'COUNT("{name}")' for name in DATES]
        source = self.SOURCES[form].format(literal(path))
        return self.db.execute(f"SELECT COUNT(*), {', '.join(sums + letters + dates)} FROM {source}").fetchone()

    def write(self, form, source, target):
        if form == "avro":
            raise Unknown
        many = ", PER_THREAD_OUTPUT true" if self.parallel else ""
        self.db.execute(f"COPY (FROM read_parquet({literal(source)})) TO {literal(target)} (FORMAT {form}{many})")
        return [True]

    def group(self, path):
        return self.db.execute(
            "SELECT COUNT(*), SUM(trades), SUM(shares), SUM(dollars) FROM (SELECT Symbol, COUNT(*) AS trades, SUM(Size) AS shares, "
            f"SUM(Price * Size) AS dollars FROM read_csv({literal(path)}) GROUP BY Symbol)"
        ).fetchone()


class Polars:
    SCANS = {"csv": "scan_csv", "parquet": "scan_parquet", "json": "scan_ndjson", "arrow": "scan_ipc"}
    SINKS = {"csv": "sink_csv", "parquet": "sink_parquet", "json": "sink_ndjson", "arrow": "sink_ipc"}

    def __init__(self, threads):
        os.environ["POLARS_MAX_THREADS"] = str(threads)
        import polars

        self.pl = polars

    def prepare(self, form):
        if form != "avro" and form not in self.SCANS:
            raise Unknown

    def collect(self, lazy):
        try:
            return lazy.collect(engine="streaming")
        except TypeError:  # versions before 1.23
            return lazy.collect(streaming=True)

    def read(self, form, path):
        pl = self.pl
        lazy = pl.read_avro(path).lazy() if form == "avro" else getattr(pl, self.SCANS[form])(path)
        return self.collect(lazy.select(
            pl.len().alias("rows"),
            *(pl.col(name).sum() for name in NUMBERS + WHOLE),
            *(pl.col(name).str.len_chars().cast(pl.Int64).sum() for name in TEXTS),
            *(pl.col(name).count() for name in DATES),
        )).row(0)

    def write(self, form, source, target):
        lazy = self.pl.scan_parquet(source)
        if form == "avro":
            self.collect(lazy).write_avro(target)
        else:
            getattr(lazy, self.SINKS[form])(target)
        return [True]


class Pandas:
    FORMATS = ("sas7bdat", "xport")

    def __init__(self, _):
        import pandas

        self.pandas = pandas

    def prepare(self, form):
        if form not in self.FORMATS:
            raise Unknown

    def read(self, form, path):
        return [len(self.pandas.read_sas(path, format=form))]


class Pyreadstat(Pandas):
    def __init__(self, _):
        import pyreadstat

        self.readers = {"sas7bdat": pyreadstat.read_sas7bdat, "xport": pyreadstat.read_xport}

    def read(self, form, path):
        return [len(self.readers[form](path)[0])]


ENGINES = {"duckdb": Duckdb, "polars": Polars, "pandas": Pandas, "pyreadstat": Pyreadstat}


def main():
    name, action, *rest, threads = sys.argv[1:]
    try:
        engine = ENGINES[name](int(threads))
        if action != "group":
            engine.prepare(rest[0])
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        found = getattr(engine, action)(*rest)
        seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    except (ImportError, Unknown) as e:
        print(f"{name} cannot {action} {rest[0]}: {e}", file=sys.stderr)
        sys.exit(ABSENT)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "found": [float(value) for value in found]}))


if __name__ == "__main__":
    main()
