"""E5, CPU-bound: a count for each of a million keys, which stay in memory, from datagen.

  benches/e5.py cpu [--rows 100000000] [--parallelism 1,2]

From as many splits as there are shards, and from 48, as the experiment's topic has partitions. Ten million messages a second
are wanted, and more shards must not be slower than one.
"""

import statistics

from common import TIDEMILL, bar, finish, machine, needs, numbers, out_option, run, say, shown, table

SPLITS = {"a split a shard": "", "48 splits": ", 'splits' = '48'"}
WANTED = 10_000_000


def options(p):
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--rows", type=int, default=100_000_000)
    p.add_argument("--parallelism", type=numbers, default=[1, 2], help="such as 1,2,4")
    out_option(p, "cpu")


def main(a):
    needs(TIDEMILL)
    found, failures = {}, []
    for round_ in range(a.rounds):
        for splits, more in SPLITS.items():
            for shards in a.parallelism:
                try:
                    done = run("cpu-bound.sql", {"ROWS": a.rows, "OPTIONS": more}, "-q", "--parallelism", str(shards))
                except RuntimeError as e:
                    failures.append(f"{splits}, parallelism {shards}: {e}")
                    say(f"FAILED {failures[-1]}")
                    continue
                cell = {"rate": a.rows / done["elapsed_s"], "cpu": done["cpu_s"] / a.rows * 1e9, "peak": done["peak_mb"]}
                found.setdefault((splits, shards), []).append(cell)
                say(round_, splits, shards, {key: round(v, 1) for key, v in cell.items()})
    lines = ["# E5, CPU-bound", "", f"{machine()} {a.rows:,} messages of a million keys.", "", f"Medians of {a.rounds} rounds, the range behind them.", ""]
    column = lambda key, name: [cell[name] for cell in found[key]]
    rows = [[key[0], str(key[1]), shown(column(key, "rate")), shown(column(key, "cpu"), 1), shown(column(key, "peak"))] for key in found]
    lines += table(["from", "shards", "messages/s", "CPU ns each", "peak MB"], rows) + [""]
    rate = {key: statistics.median(column(key, "rate")) for key in found}
    for splits in SPLITS:
        of = {shards: rate[key] for key in found for shards in key[1:] if key[0] == splits}
        if of:
            lines.append(bar(max(of.values()) >= WANTED, f"{splits}: {max(of.values()) / 1e6:.1f} million messages a second, 10 wanted"))
        if 1 in of:
            lines += [bar(r >= of[1], f"{splits}: {shards} shards have {r / of[1]:.2f} times the rate of one") for shards, r in of.items() if shards > 1]
    finish(lines, failures, a.out)
