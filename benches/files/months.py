"""Months of trades in the layout of NASDAQ's files of short sales, as a zip a month with a text file a day, and as a gz a month with
one header line and the same lines; the first month over and over as one long file, packed and not. Made once by our own engine,
seeded, and kept."""

import concurrent.futures
import datetime
import gzip
import json
import math
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
# What is left free on the disk beside the long files, bytes: what else is measured writes there, too.
SPARE = 5e9


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


@dataclass
class Long:
    """One long file of text, and the same text as a gz of many members."""

    text: str
    gz: str
    # Lines without the header.
    rows: int
    text_bytes: int
    wanted_gb: float


def make_long(months, gigabytes):
    """The first month over and over, made or found beside the months: at least so many GB of text, or what the disk has room for."""
    source = months.gz[0]
    folder = os.path.join(os.path.dirname(source), "long")
    made, text, packed = (os.path.join(folder, name) for name in ("made.json", "long.txt", "long.txt.gz"))
    os.makedirs(folder, exist_ok=True)
    with gzip.open(source) as month:
        header = month.readline()
        month_bytes = sum(map(len, iter(lambda: month.read(BLOCK), b"")))
    wanted = math.ceil(gigabytes * 1e9 / month_bytes)
    there = [path for path in (text, packed) if os.path.exists(path)]
    room = shutil.disk_usage(folder).free + size(there) - SPARE
    # A month in the text, and one packed.
    times = min(wanted, int(room // (month_bytes + os.path.getsize(source))))
    if times < 1:
        raise RuntimeError(f"there is no room for a long file: {room / 1e9:.1f} GB beside {SPARE / 1e9:.0f} GB that are left free")
    known = {"times": 0, "wanted": 0}
    if os.path.exists(made):
        with open(made) as file:
            known = json.load(file)
    # What was made when there was less room stays if it is almost as long as what could be made now.
    if len(there) < 2 or known["wanted"] != wanted or known["times"] < times * 0.9:
        say(f"making {times * month_bytes / 1e9:.1f} GB of text, and the same as gz")
        for path in (made, *there):
            if os.path.exists(path):
                os.remove(path)
        repeat(source, header, times, text, packed)
        known = {"times": times, "wanted": wanted}
        with open(made + ".tmp", "w") as file:
            json.dump(known, file)
        os.rename(made + ".tmp", made)
    return Long(text, packed, months.rows // MONTHS * known["times"], os.path.getsize(text), gigabytes)


def repeat(source, header, times, text, packed):
    """Writes the header and `times` the lines of a gz: as text, and as a gz whose members are the header and each time the lines."""
    lines = packed + ".lines"
    with gzip.open(source) as month, open(text, "wb") as out, open(lines, "wb") as raw:
        month.readline()
        out.write(header)
        with gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as member:
            while block := month.read(BLOCK):
                member.write(block)
                out.write(block)
        month_end = out.tell()
    with open(text, "r+b") as out, open(text, "rb") as month:
        out.seek(0, os.SEEK_END)
        for _ in range(times - 1):
            month.seek(len(header))
            while month.tell() < month_end:
                out.write(month.read(min(BLOCK, month_end - month.tell())))
    with open(packed, "wb") as out, open(lines, "rb") as member:
        out.write(gzip.compress(header, LEVEL, mtime=0))
        for _ in range(times):
            member.seek(0)
            shutil.copyfileobj(member, out, BLOCK)
    os.remove(lines)
