#!/usr/bin/env python3
"""Experiment E3: twelve months of packed files of text, counted and grouped, on this machine. Python's standard library only.

  cargo build --release -p tidemill
  benches/e3.py [--megabytes 200] [--long-gb 20] [--rounds 3] [--only warm,cold] [--quick]

The months (see files/months.py) are made once, by our own engine, and kept in --work, and so is what `long` reads. What is measured,
rounds over all cells in turn:

  warm      from the page cache: lines of 12 gz and of 12 zip with a member a day, by us, by GNU parallel (xargs -P where there is
            none) with zcat or unzip and wc, by these one after the other; trades, shares and dollars by symbol, by us and by DuckDB
  files     zips unpacked to files, then counted: one after the other and all from disk, in parallel and from the page cache
  cold      nothing in the page cache (posix_fadvise, no rights needed): ours, zcat, and cat, which is what the disk gives
  throttle  the same on a disk of --disk-mb MB a second, by a control group (root); where none can be made, over a web server of that rate
  http      one zip from a web server of --http-mb MB a second, with and without ranges: the download alone, and counted as it comes
  long      one file of --long-gb GB of text and one gz of the same text: lines, and trades by symbol; what counts is the memory. The text
            is that of January over and over, in the gz as one member each time; both take 25 GB of disk, and where there is not so much
            the text is shorter, which is said

Environment: TIDEMILL (the program), RUNS (--rounds), PYTHON (a Python with duckdb; without it that cell is left out).
Medians with ranges, CPU, memory and bars go to standard output and, with a plot, to benches/runs/DATE/e3.txt and e3.svg. The exit code is
1 if a cell failed, whatever it measured: bars are told as "holds" or "FAILS".
"""

import argparse
import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "e5"), os.path.join(HERE, "files")]

from common import ROOT, TIDEMILL, bar, machine, needs, say, shown, table  # noqa: E402
from measure import Absent, Cells, Throttle, bars, below, drop, importable, job, measured, needed, plain  # noqa: E402
from measure import server, shell, size, warm  # noqa: E402
from months import make, make_long  # noqa: E402

JOBS = os.path.join(HERE, "jobs")
GROUPS = ["warm", "files", "cold", "throttle", "http", "long"]
CORES = os.cpu_count()
# The bars: times as fast; shares above what is compared with; MB.
COUNTING, GROUPING, ZIP_OVER_GZ, DISK, DOWNLOAD, MEMORY_MB = 3, 3, 1.10, 1.10, 1.05, 1024
# What another engine may differ by in a sum of floating-point numbers.
CLOSE = 1e-9
# A limited disk must take at least this share of the time that it is limited to.
SLOWED = 0.8


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    p.add_argument("--work", default=os.path.join(cache, "tidemill-benches"), help="where the months are kept, on the disk to be measured")
    p.add_argument("--megabytes", type=int, default=200, help="text of a month, unpacked")
    p.add_argument("--days", type=int, default=20, help="members of a month's zip")
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--rounds", type=int, default=int(os.environ.get("RUNS", "3")))
    p.add_argument("--only", default=",".join(GROUPS), help="what is measured, with commas")
    p.add_argument("--disk-mb", type=float, default=60, help="the throttled disk, MB a second")
    p.add_argument("--http-mb", type=float, default=5, help="the web server's line, MB a second")
    p.add_argument("--long-gb", type=float, default=20, help="text of the long files, unpacked")
    p.add_argument("--python", default=os.environ.get("PYTHON", "python3"))
    p.add_argument("--quick", action="store_true", help="small and once, to see that all of it works")
    p.add_argument("--out", default=os.path.join(HERE, "runs", datetime.date.today().isoformat()))
    a = p.parse_args()
    if a.quick:
        a.megabytes, a.days, a.long_gb, a.rounds = 2, 3, 0.02, 1
    a.only = [name.strip() for name in a.only.split(",")]
    if unknown := [name for name in a.only if name not in GROUPS]:
        p.error(f"there is no {unknown[0]!r}; there are {', '.join(GROUPS)}")
    return a


def quoted(path):
    """A path as a table in our SQL."""
    return "'" + path.replace("'", "''") + "'"


class Bench:
    def __init__(self, a, months):
        self.a, self.months, self.cells = a, months, Cells(say)
        self.gz_table = quoted(os.path.join(os.path.dirname(months.gz[0]), "*.txt.gz"))
        self.zip_table = quoted(os.path.join(os.path.dirname(months.zips[0]), "*.zip") + "//*.txt")
        self.notes, self.first_group, self.made_long = [], {}, None

    # What is run.

    def count(self, files, parallelism=None, **how):
        return lambda: job(os.path.join(JOBS, "e3-count.sql"), {"FILES": files}, parallelism, **how)

    def group(self, files):
        return lambda: job(os.path.join(JOBS, "e3-group.sql"), {"FILES": files}, None)

    def duckdb(self):
        path = os.path.join(os.path.dirname(self.months.gz[0]), "*.txt.gz")
        if not importable(self.a.python, "duckdb"):
            raise Absent("PYTHON, or --python, has no duckdb")
        done = measured([self.a.python, os.path.join(HERE, "files", "peers.py"), "duckdb", "group", path, str(CORES)])
        told = json.loads(done.out.splitlines()[-1])
        # Of the work alone; memory is that of all.
        done.seconds, done.cpu_s, done.out = told["seconds"], told["cpu_s"], ",".join(map(str, told["found"]))
        return done

    def each(self, command, files):
        """A command for every file, as many at once as there are processors, all into one `wc -l`."""
        return lambda: shell(f"{command} | wc -l", *files)

    def at_once(self, command):
        """`command` for each argument of the shell, in parallel, their outputs one behind the other or mixed by pieces."""
        if has_gnu_parallel():
            return f'parallel -j {CORES} {command} ::: "$@"'
        return f'printf "%s\\0" "$@" | xargs -0 -n 1 -P {CORES} {command}'

    def at_once_counted(self, command):
        """`command | wc -l` for each argument, in parallel, and the sum."""
        each = f"bash -o pipefail -c '{command} \"$0\" | wc -l'"
        total = "awk '{ n += $1 } END { printf \"%d\\n\", n }'"
        return f'printf "%s\\0" "$@" | xargs -0 -n 1 -P {CORES} {each} | {total}'

    # What must come out.

    def lines(self, packed):
        """`wc -l` counts the headers, too."""
        return lambda done: self.same(done, self.months.lines(packed))

    def rows(self, done):
        return self.same(done, self.months.rows)

    def rows_from_disk(self, done):
        """Says it where the page cache was not emptied, as in some file systems."""
        read = done.summary["read"]
        if read["cache"] > read["disk"]:
            self.note(f"Of the cold bytes {read['cache'] / 1e6:,.0f} MB came from the page cache: it could not be emptied.")
        return self.rows(done)

    def same(self, done, expect):
        found = int(float(done.out.strip() or "-1"))
        return None if found == expect else f"{found:,} lines instead of {expect:,}"

    def grouped(self, done):
        return self.same_groups(done, "months", self.months.rows)

    def same_groups(self, done, what, rows):
        """What is found first of the same lines is what all others must find."""
        found = [float(value) for value in done.out.strip().split(",")]
        first = self.first_group.setdefault(what, found)
        if found[1] != rows:
            return f"{found[1]:,.0f} trades instead of {rows:,}"
        near = all(abs(x - y) <= CLOSE * abs(y) for x, y in zip(found, first))
        return None if near else f"{found} instead of {first}"

    # The groups.

    def warm(self):
        m, attempt = self.months, self.cells.attempt
        warm(m.gz + m.zips)
        attempt("gz, tidemill", self.count(self.gz_table), self.rows)
        attempt("gz, parallel zcat to wc -l", self.each(self.at_once("zcat"), m.gz), self.lines("gz"))
        attempt("gz, parallel zcat, a wc -l each", lambda: shell(self.at_once_counted("zcat"), *m.gz), self.lines("gz"))
        attempt("gz, one shard, tidemill", self.count(self.gz_table, 1), self.rows)
        attempt("gz, zcat to wc -l", lambda: shell('zcat "$@" | wc -l', *m.gz), self.lines("gz"))
        attempt("zip, tidemill", self.count(self.zip_table), self.rows)
        attempt("zip, parallel unzip -p to wc -l", lambda: self.unzip(self.at_once("unzip -p")), self.lines("zip"))
        attempt("zip, one shard, tidemill", self.count(self.zip_table, 1), self.rows)
        attempt("zip, unzip -p to wc -l", lambda: self.unzip('for zip in "$@"; do unzip -p "$zip"; done'), self.lines("zip"))
        attempt("gz by symbol, tidemill", self.group(self.gz_table), self.grouped)
        attempt("gz by symbol, DuckDB", self.duckdb, self.grouped)
        attempt("zip by symbol, tidemill", self.group(self.zip_table), self.grouped)

    def unzip(self, command):
        needed("unzip")
        return shell(f"{command} | wc -l", *self.months.zips)

    def files(self):
        m, attempt = self.months, self.cells.attempt
        serial = 'for zip in "$@"; do unzip -q -o "$zip" -d "$OUT"; done'
        parallel = f'printf "%s\\0" "$@" | xargs -0 -n 1 -P {CORES} unzip -q -o -d "$OUT"'
        wc = lambda out: shell('cat "$@" | wc -l', *below(out))
        ours = lambda out: self.count(quoted(os.path.join(out, "*.txt")))()
        attempt("zip to files from disk, then wc -l", lambda: self.unpacked(serial, wc, cold=True), self.lines("zip"))
        warm(m.zips)
        attempt("zip to files in parallel, then wc -l", lambda: self.unpacked(parallel, wc), self.lines("zip"))
        attempt("zip to files in parallel, then tidemill", lambda: self.unpacked(parallel, ours), self.rows)

    def unpacked(self, command, count, cold=False):
        """Both steps together."""
        needed("unzip")
        out = os.path.join(self.a.work, f"unpacked-{os.getpid()}")
        os.makedirs(out)
        try:
            if cold:
                drop(self.months.zips)
            first = shell(command, *self.months.zips, env={"OUT": out})
            if cold:
                drop(below(out))
            second = count(out)
        finally:
            shutil.rmtree(out)
        second.seconds += first.seconds
        second.cpu_s += first.cpu_s
        second.peak_mb = max(first.peak_mb, second.peak_mb)
        return second

    def from_disk(self, files, run):
        """Runs with these files out of the page cache."""
        def again():
            drop(files)
            return run()
        return again

    def cold(self):
        m, attempt = self.months, self.cells.attempt
        attempt("cold gz, cat", self.from_disk(m.gz, lambda: shell('cat "$@" > /dev/null', *m.gz)))
        attempt("cold gz, tidemill", self.from_disk(m.gz, self.count(self.gz_table)), self.rows_from_disk)
        attempt("cold gz, parallel zcat to wc -l", self.from_disk(m.gz, self.each(self.at_once("zcat"), m.gz)), self.lines("gz"))
        attempt("cold zip, tidemill", self.from_disk(m.zips, self.count(self.zip_table)), self.rows)

    def throttle(self):
        m, attempt = self.months, self.cells.attempt
        try:
            throttle = Throttle(os.path.dirname(m.gz[0]), int(self.a.disk_mb * 1e6))
        except OSError as e:
            self.throttled_by_server(f"no control group could be made ({e.strerror})")
            return
        try:
            cat = self.from_disk(m.gz, lambda: measured(throttle.wrap(["bash", "-c", 'cat "$@" > /dev/null', "bash", *m.gz])))
            # Below a virtual disk a limit may do nothing.
            if cat().seconds < SLOWED * size(m.gz) / (self.a.disk_mb * 1e6):
                self.throttled_by_server("the control group did not slow the disk down")
                return
            attempt("throttled gz, cat", cat)
            attempt("throttled gz, tidemill", self.from_disk(m.gz, self.count(self.gz_table, wrap=throttle.wrap)), self.rows)
        finally:
            throttle.close()

    def note(self, text):
        """Something that the report says once."""
        if text not in self.notes:
            self.notes.append(text)

    def throttled_by_server(self, why):
        """The same files over the network, as slowly as the disk was to be."""
        self.note(f"Throttled is a web server and not a disk: {why}.")
        warm(self.months.gz)
        with self.slow(self.a.disk_mb, True) as address:
            urls = [f"{address}/{os.path.basename(path)}" for path in self.months.gz]
            all_of_them = f"read_csv(ARRAY[{', '.join(quoted(url) for url in urls)}])"
            self.cells.attempt("throttled gz, cat", lambda: download(urls))
            self.cells.attempt("throttled gz, tidemill", self.count(all_of_them), self.rows)

    def slow(self, rate, ranges):
        command = [sys.executable, os.path.join(HERE, "files", "slow.py"), os.path.dirname(self.months.gz[0]), "--mb", str(rate)]
        return server(command + (["--ranges"] if ranges else []))

    def http(self):
        m = self.months
        warm(m.zips[:1])
        month = lambda done: self.same(done, m.rows // len(m.zips))
        for ranges, how in ((False, "http zip"), (True, "http zip, ranges")):
            with self.slow(self.a.http_mb, ranges) as address:
                url = f"{address}/{os.path.basename(m.zips[0])}"
                self.cells.attempt(f"{how}, download alone", lambda: download([url]))
                self.cells.attempt(f"{how}, tidemill", self.count(quoted(url)), month)

    def long(self):
        attempt = self.cells.attempt
        if self.made_long is None:
            self.made_long = make_long(self.months, self.a.long_gb)
        long = self.made_long
        if long.wanted_gb > long.text_bytes / 1e9:
            self.note(f"Long is {long.text_bytes / 1e9:.1f} GB and not {long.wanted_gb:g}: there is no room for more on the disk.")
        lines = lambda done: self.same(done, long.rows)
        groups = lambda done: self.same_groups(done, "long", long.rows)
        for path, what in ((long.text, "long text"), (long.gz, "long gz")):
            attempt(f"{what}, tidemill", self.count(quoted(path)), lines)
            attempt(f"{what} by symbol, tidemill", self.group(quoted(path)), groups)

    # What is told.

    def report(self):
        a, m, cells = self.a, self.months, self.cells
        lines = [
            "E3: twelve months of packed text",
            "",
            f"{machine()}",
            f"{m.rows:,} lines, {m.text_bytes / 1e6:,.0f} MB of text in {len(m.zips)} months of {m.days} files; "
            f"gz {size(m.gz) / 1e6:,.0f} MB, zip {size(m.zips) / 1e6:,.0f} MB. Medians of {a.rounds} rounds.",
            *self.long_line(),
            "CPU and memory are those of all processes of a way; memory is the largest process's. DuckDB's seconds are without its start.",
            *self.notes,
            "",
            *table(["way", "seconds", "CPU s", "peak MB", "MB of text/s"], [self.row(name) for name in cells.done]),
            "",
            *(self.bars()),
        ]
        lines += [f"left out: {name}: {why}" for name, why in cells.absent.items()]
        lines += [f"FAILED {failure}" for failure in cells.failures]
        return "\n".join(lines) + "\n"

    def long_line(self):
        if (long := self.made_long) is None:
            return []
        return [f"Long are {long.rows:,} lines, {size([long.text]) / 1e9:.1f} GB of text, as gz {size([long.gz]) / 1e9:.1f} GB."]

    def text_bytes(self, name):
        """What a cell reads, unpacked."""
        if name.startswith("long"):
            return self.made_long.text_bytes
        return self.months.text_bytes / (len(self.months.zips) if name.startswith("http") else 1)

    def row(self, name):
        runs = self.cells.done[name]
        rate = self.text_bytes(name) / self.cells.seconds(name) / 1e6
        seconds, cpu = shown([r.seconds for r in runs], 2), shown([r.cpu_s for r in runs], 2)
        return [name, seconds, cpu, f"{self.cells.peak(name):,.0f}", f"{rate:,.0f}"]

    def bars(self):
        ratio, told = self.cells.ratio, []
        for ours, theirs, least in (
            ("gz, tidemill", "gz, parallel zcat to wc -l", COUNTING),
            ("gz by symbol, tidemill", "gz by symbol, DuckDB", GROUPING),
        ):
            if (value := ratio(theirs, ours)) is not None:
                told.append(bar(value >= least, f"{ours}: {value:.2f} times as fast as {theirs} (at least {least})"))
        for ours, alone, most, what in (
            ("zip, tidemill", "gz, tidemill", ZIP_OVER_GZ, "zip over gz"),
            ("throttled gz, tidemill", "throttled gz, cat", DISK, "throttled disk over reading alone"),
            ("http zip, tidemill", "http zip, download alone", DOWNLOAD, "zip from a slow server over the download alone"),
            ("http zip, ranges, tidemill", "http zip, ranges, download alone", DOWNLOAD, "the same with ranges"),
        ):
            if (value := ratio(ours, alone)) is not None:
                told.append(bar(value <= most, f"{what}: {value:.3f} (at most {most:.2f})"))
        ours = {name: self.cells.peak(name) for name in self.cells.done if name.endswith("tidemill")}
        for long in (False, True):
            peaks = {name: peak for name, peak in ours.items() if name.startswith("long") == long}
            if peaks:
                most = max(peaks, key=peaks.get)
                of = f" of {self.made_long.text_bytes / 1e9:.1f} GB" if long else ""
                told.append(bar(peaks[most] < MEMORY_MB, f"memory: {peaks[most]:,.0f} MB at most, in '{most}'{of} (below {MEMORY_MB:,})"))
        if (seconds := self.cells.seconds("cold gz, cat")) is not None:
            told.append(f"- the disk gives {size(self.months.gz) / seconds / 1e6:,.0f} MB/s")
        if (value := ratio("cold gz, tidemill", "cold gz, cat")) is not None:
            told.append(f"- cold gz: {value:.2f} of reading alone")
        for packed in ("gz", "zip"):
            if (value := ratio(f"{packed}, one shard, tidemill", f"{packed}, tidemill")) is not None:
                told.append(f"- {packed}: one shard takes {value:.2f} times as long as {CORES}")
        return told

    def plot(self):
        rows, group = [], None
        for name in self.cells.done:
            # Beside their minutes the seconds of the others could not be seen.
            if name.startswith("long"):
                continue
            kind = name.split(",")[0]
            rows += [None] if group not in (None, kind) else []
            group = kind
            rows.append((name, self.cells.seconds(name), name.endswith("tidemill")))
        return bars("E3: seconds, medians", rows)


def download(urls):
    """Reads addresses one after the other and throws the bytes away."""
    script = """
import sys, urllib.request
for url in sys.argv[1:]:
    with urllib.request.urlopen(url) as body:
        while body.read(1 << 20):
            pass
"""
    return measured([sys.executable, "-c", script, *urls])


def has_gnu_parallel():
    """Whether `parallel` is GNU's; there is another of that name."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(["parallel", "--version"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
        return "GNU parallel" in told.stdout
    return False


def main():
    a = options()
    needs(TIDEMILL)
    # Whoever stops this stops what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("e3.py: stopped"))
    os.makedirs(a.work, exist_ok=True)
    try:
        bench = Bench(a, make(a.work, a.megabytes, a.days, a.seed))
    except RuntimeError as e:
        sys.exit(f"e3.py: {e}")
    if not has_gnu_parallel():
        bench.note("GNU parallel is not installed: what is called parallel is xargs -P.")
    for number in range(a.rounds):
        say(f"round {number + 1} of {a.rounds}")
        for group in a.only:
            # A group that cannot be prepared shall not lose the others.
            try:
                getattr(bench, group)()
            except (OSError, RuntimeError) as e:
                bench.cells.failures.append(f"{group}: {e}")
                say(f"FAILED {bench.cells.failures[-1]}")
    os.makedirs(a.out, exist_ok=True)
    text = plain(bench.report(), a.work, ROOT)
    with open(os.path.join(a.out, "e3.txt"), "w") as file:
        file.write(text)
    with open(os.path.join(a.out, "e3.svg"), "w") as file:
        file.write(bench.plot())
    print(text)
    sys.exit(1 if bench.cells.failures else 0)


if __name__ == "__main__":
    main()
