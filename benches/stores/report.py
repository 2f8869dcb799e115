"""What was measured of the stores, as a page with tables and bars."""

import statistics

from common import bar, machine, shown, table

TENTHS = 10

# Figures of others, in events a second: inserts, updates. The study's own, on other machines:
E4 = {"MySQL 5.7": (3_400, 500), "SQL Server 2016": (55_000, 1_000), "Oracle 12c": (70_000, 20_000)}
# Siddhi's RDBMS store at its best, measured once with the same MariaDB; its jar is in no registry.
SIDDHI = {"MariaDB": (10_000, 3_500)}

# The bars. Inserts: of the rate of the store's own bulk path, and of the second fifth of the run in the last one (in the
# first fifth queues fill). Updates: times one at a time, times a thousand at a time. p99 in ms. Both: times Siddhi's.
BULK, FLAT, SINGLY, THOUSANDS, LATENCY_MS, OF_SIDDHI = 0.9, 0.8, 20, 2, 100, (8, 12)


class Cells:
    """Figures by store and name, those of each round behind each other."""

    def __init__(self):
        self.all = {}

    def note(self, store, what, value):
        self.all.setdefault((store, what), []).append(value)

    def get(self, store, what):
        return self.all.get((store, what), [])

    def middle(self, store, what):
        """The median, if there is one."""
        values = self.get(store, what)
        return statistics.median(values) if values else None

    def shown(self, store, what, digits=0):
        return shown(self.get(store, what), digits)

    def over(self, store, what, other):
        """The ratio of two medians, if both are there."""
        a, b = self.middle(store, what), self.middle(store, other)
        return a / b if a is not None and b else None

    def tenths(self, store):
        """The median rate of each tenth of the run."""
        rounds = self.get(store, "tenths")
        return [statistics.median(tenth) for tenth in zip(*rounds)]

    def flat(self, store):
        """The last fifth's rate over that of the second, if the run was long enough to tell."""
        tenths = self.tenths(store)
        if len(tenths) < TENTHS or min(tenths) <= 0:
            return None
        # Tenths have equally many rows, so the mean of two is harmonic.
        fifth = lambda number: statistics.harmonic_mean(tenths[2 * number - 2:2 * number])
        return fifth(5) / fifth(2)


def ratio(value):
    return "–" if value is None else f"{value:.2f}"


def bars(cells, store):
    """A line for each bar that can be told."""
    lines = []

    def say(value, least, text):
        if value is not None:
            lines.append(bar(value >= least, f"{store}: {text(value)}"))

    say(cells.over(store, "insert", "bulk"), BULK, lambda v: f"inserts are {v:.0%} of its own bulk path (at least {BULK:.0%})")
    say(cells.flat(store), FLAT, lambda v: f"the last fifth of the inserts has {v:.0%} of the rate of the second (at least {FLAT:.0%})")
    say(cells.over(store, "update", "singly"), SINGLY, lambda v: f"updates are {v:.1f} times one at a time (at least {SINGLY})")
    say(cells.over(store, "update", "thousands"), THOUSANDS, lambda v: f"updates are {v:.1f} times a thousand at a time (at least {THOUSANDS})")
    for at, what in enumerate(("insert", "update")):
        if store in SIDDHI and (rate := cells.middle(store, what)) is not None:
            theirs, times = SIDDHI[store][at], OF_SIDDHI[at]
            lines.append(bar(rate >= times * theirs, f"{store}: {what}s are {rate / theirs:.1f} times Siddhi's {theirs:,}/s (at least {times})"))
        if (p99 := cells.middle(store, f"{what} p99")) is not None:
            lines.append(bar(p99 < LATENCY_MS, f"{store}: p99 of {what}s at half the rate is {p99:.1f} ms to the commit (below {LATENCY_MS})"))
    return lines


def page(a, cells, stores, failures, plots, fsync_us):
    """The page: `stores` are those that were measured, `plots` names of files, `fsync_us` what making 4 KB safe takes here."""
    get = cells.shown
    others = [*E4.items(), *((f"Siddhi with {name}", rates) for name, rates in SIDDHI.items())]
    lines = [
        "# Stores: inserts and updates by key",
        "",
        f"{machine()} {a.rows:,} events of ten columns and about 180 bytes inserted into an empty table; {a.updates:,} updates, keys",
        f"chosen uniformly, in a table of {a.table:,} rows. Medians of {a.rounds} rounds, with ranges. Parallelism {a.parallelism}"
        + (", inserts exactly once with checkpoints." if a.checkpoints else ", without checkpoints."),
        "Single updates and those of a thousand rows a statement are samples. Writing 4 KB and making them safe takes the disk",
        f"{fsync_us:,.0f} µs. Settings are those of the installations:",
        "",
        *(f"- {s.name} {s.about}" for s in stores),
        "",
        *table(
            ["store", "inserts/s", "its own bulk path", "ratio", "last fifth over second", "CPU µs an event", "peak MB", "bytes a row"],
            [[s.name, get(s.name, "insert"), get(s.name, "bulk"), ratio(cells.over(s.name, "insert", "bulk")), ratio(cells.flat(s.name)),
              get(s.name, "CPU µs", 2), get(s.name, "peak MB"), f"{(cells.middle(s.name, 'bytes') or 0) / a.rows:,.0f}"] for s in stores],
        ),
        "",
        *table(
            ["store", "updates/s", "one at a time", "times", "a thousand at a time", "times"],
            [[s.name, get(s.name, "update"), get(s.name, "singly"), ratio(cells.over(s.name, "update", "singly")),
              get(s.name, "thousands"), ratio(cells.over(s.name, "update", "thousands"))] for s in stores],
        ),
        "",
        "Latency at half of those rates, from a row's arrival in the process to the commit, ms. Exactly-once rows are",
        f"committed with checkpoints, here one each {a.interval_ms} ms:",
        "",
        *table(
            ["store", "inserts p50", "p99", "exactly once p50", "p99", "updates p50", "p99"],
            [[s.name, *(get(s.name, f"{what} {q}", 1) for what in ("insert", "exactly once", "update") for q in ("p50", "p99"))] for s in stores],
        ),
        "",
        f"Updates a second at which that p99 is below {LATENCY_MS} ms, where it is not at half of their rate: "
        + ("; ".join(f"{s.name} {get(s.name, 'prompt updates')} (p99 {get(s.name, 'prompt updates p99', 1)} ms)" for s in stores
                     if cells.get(s.name, "prompt updates")) or "not sought") + ".",
        "",
        "Inserts a second by tenths of the run, while the table grows; the first has what queues took, and the last not what they gave back:",
        "",
        *table(
            ["store", *(f"{10 * i} %" for i in range(1, TENTHS + 1))],
            [[s.name, *([f"{tenth:,.0f}" for tenth in cells.tenths(s.name)] or ["–"] * TENTHS)] for s in stores],
        ),
        "",
        "Others, on other machines: "
        + "; ".join(f"{name} {inserts:,} inserts/s, {updates:,} updates/s" for name, (inserts, updates) in others) + ".",
        "",
        *(line for s in stores for line in bars(cells, s.name)),
    ]
    if plots:
        lines += ["", "Rate and latency over time and over the size of the table: " + ", ".join(f"[{name}]({name})" for name in plots) + "."]
    lines += [""] * bool(failures) + [f"FAILED {failure}" for failure in failures]
    return "\n".join(lines) + "\n"
