"""Months of trades in the layout of NASDAQ's files of short sales, as a zip a month with a text file a day, and as a gz a month with
one header line and the same lines. Made once by our own engine, seeded, and kept."""

import concurrent.futures
import datetime
import gzip
import json
import os
import shutil
import zipfile
from dataclasses import dataclass

from common import BENCHES, say
from measure import BLOCK, job, size

YEAR = 2005
MONTHS = 12
# Bytes of a line, by which sizes become numbers of lines.
LINE_BYTES = 45
# The generator of trades has so many a day.
DAY_LINES_MAX = 1_000_000
# Every month has so many days that are no weekends; the names of files tell them by their days.
DAYS_MAX = 20
# As gzip and zip have it by default.
LEVEL = 6


@dataclass
class Months:
    """What was made."""

    gz: list
    zips: list
    # Lines without the headers, of all months.
    rows: int
    days: int
    # Bytes of all members of the zips.
    text_bytes: int

    def lines(self, packed):
        """What `wc -l` counts: with a header line a file of text."""
        return self.rows + (len(self.gz) if packed == "gz" else len(self.zips) * self.days)


def trading_days(month, count):
    """The first so many days of a month that are no weekends."""
    day, found = datetime.date(YEAR, month, 1), []
    while len(found) < count:
        if day.weekday() < 5:
            found.append(day)
        day += datetime.timedelta(days=1)
    return found


def make(work, megabytes, days, seed):
    """The months, made or found in `work`; `megabytes` of text a month."""
    if not 1 <= days <= DAYS_MAX:
        raise RuntimeError(f"--days is 1 to {DAYS_MAX}, not {days}")
    lines = int(megabytes * 1e6 / days / LINE_BYTES)
    if not 1 <= lines <= DAY_LINES_MAX:
        raise RuntimeError(f"{lines:,} lines a day; there can be 1 to {DAY_LINES_MAX:,}: other --megabytes or --days")
    folder = os.path.join(work, f"e3-{megabytes}mb-{days}days-{seed}")
    made = os.path.join(folder, "made.json")
    if not os.path.exists(made):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        say(f"making {MONTHS} months of {days} days with {lines:,} lines each")
        # Packing lets go of Python's lock, so that threads use all processors.
        pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        try:
            texts = list(pool.map(lambda month: pack(folder, month, days, lines, seed), range(1, MONTHS + 1)))
        finally:
            pool.shutdown(cancel_futures=True)
        with open(made + ".tmp", "w") as file:
            json.dump({"rows": MONTHS * days * lines, "text_bytes": sum(texts)}, file)
        os.rename(made + ".tmp", made)
    with open(made) as file:
        known = json.load(file)
    names = [os.path.join(folder, f"{YEAR}-{month:02}") for month in range(1, MONTHS + 1)]
    return Months([f"{n}.txt.gz" for n in names], [f"{n}.zip" for n in names], known["rows"], days, known["text_bytes"])


def pack(folder, month, days, lines, seed):
    """One month; gives the bytes of its text files, which are gone when they are packed."""
    name = os.path.join(folder, f"{YEAR}-{month:02}")
    texts = os.path.join(folder, f"texts-{month:02}")
    os.makedirs(texts)
    paths = []
    for day in trading_days(month, days):
        path = os.path.join(texts, f"NASDAQsh{day:%Y%m%d}.txt")
        values = {"OUT": path, "LINES": lines, "SEED": seed * 10_000 + month * 100 + len(paths), "DAY": day.isoformat()}
        job(os.path.join(BENCHES, "jobs", "e3-day.sql"), values, 1)
        paths.append(path)
    total = size(paths)
    with zipfile.ZipFile(f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for path in paths:
            archive.write(path, os.path.basename(path))
    with open(f"{name}.txt.gz", "wb") as raw, gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed:
        for number, path in enumerate(paths):
            with open(path, "rb") as text:
                header = text.readline()
                if number == 0:
                    packed.write(header)
                while block := text.read(BLOCK):
                    packed.write(block)
    shutil.rmtree(texts)
    say(f"{os.path.basename(name)}: {total / 1e6:,.0f} MB")
    return total
