"""E5, local store: a count for each unique key of 100 bytes, with more state than its share of memory.

  benches/e5.py store --datagen [--keys 50000000]     messages made up by the job: the engine alone
  benches/e5.py store [--keys 50000000]               from a topic of 8 partitions, KAFKA_PEER; and Samza with its
                                                      RocksDB on the same topic, if SAMZA_PEER is set, too

What is compared is the rate, the CPU a message, the most memory the process held (for Samza, the virtual machine's), and the
rate of each tenth of a run, which shows whether it slows down as the store grows; the removal of the state's files at the end is
in the rate of the whole run only. Samza reads the topic's first --samza-keys messages only, so its store is the smaller one.
--checkpoints lets our jobs take checkpoints as well.
"""

import shutil
import statistics
import tempfile

import broker
from common import TIDEMILL, bar, disk, finish, machine, needs, numbers, out_option, run, say, shown, slices, table

PARTITIONS = 8
TOPIC = "e5-unique"
TENTHS = 10
TIMES_SAMZA = 15
# Messages a second, made up by the job itself.
AIM = 1_000_000
UPSERTS = "'connector' = 'upsert-kafka', 'topic' = 'e5-counts', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'raw', 'value.format' = 'json'"


def options(p):
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--keys", type=int, default=50_000_000)
    p.add_argument("--datagen", action="store_true", help="without a broker")
    p.add_argument("--memory", default="1GB", help="of our jobs; half of it is for state")
    p.add_argument("--parallelism", type=numbers, default=[1, 2], help="such as 1,2")
    p.add_argument("--checkpoints", action="store_true", help="with a state directory")
    p.add_argument("--sink", choices=["blackhole", "kafka"], default="blackhole", help="where the counts go, with a broker")
    p.add_argument("--samza", default="0 1,1 1,8 1,8 3", help="its threads and messages in flight; '' for none")
    p.add_argument("--samza-keys", type=int, default=5_000_000)
    p.add_argument("--running", action="store_true", help="use the broker that runs")
    p.add_argument("--full", action="store_true", help="with --running: the topic is full from an earlier run")
    out_option(p, "store")


def ours(sql, values, shards, a):
    """A run of a job of ours."""
    arguments = ["--parallelism", str(shards), "--memory", a.memory]
    state = tempfile.mkdtemp(prefix="e5-store-") if a.checkpoints else None
    try:
        done = run(sql, values, *arguments, *(["--state-dir", state] if state else []))
    finally:
        if state:
            shutil.rmtree(state, ignore_errors=True)
    if done["rows_in"] != a.keys:
        raise RuntimeError(f"{done['rows_in']} messages came instead of {a.keys}")
    kept = disk(done) or {"bytes": 0, "written_bytes": 0, "reads": 0}
    return {
        "rate": a.keys / done["elapsed_s"],
        "cpu": done["cpu_s"] / a.keys * 1e6,
        "peak": done["peak_mb"],
        "disk": kept["bytes"] / 1e6,
        "written": kept["written_bytes"] / 1e6,
        "reads": kept["reads"],
        "tenths": slices(done["samples"], a.keys, TENTHS),
    }


def rounds(a, cells, failures):
    """The runs of each cell (name: a function that runs it), in turn."""
    found = {}
    for round_ in range(a.rounds):
        for name, once in cells.items():
            try:
                cell = once()
            except RuntimeError as e:  # one cell that fails shall not lose the others
                failures.append(f"{name}: {e}")
                say(f"FAILED {failures[-1]}")
                continue
            found.setdefault(name, []).append(cell)
            say(round_, name, {key: [round(v / 1e3) for v in value] if key == "tenths" else round(value, 2) for key, value in cell.items()})
    return found


def report(a, found, where):
    """Lines of the results."""
    lines = [
        "# E5, local store", "",
        f"{machine()} {a.keys:,} unique keys of 100 bytes {where}, ours with --memory {a.memory}{' and checkpoints' if a.checkpoints else ''}.", "",
        f"Medians of {a.rounds} rounds, the range behind them.", "",
    ]
    column = lambda name, key: [cell[key] for cell in found[name] if key in cell]
    figures = {"rate": 0, "cpu": 2, "peak": 0, "disk": 0, "written": 0, "reads": 0}
    rows = [[name, *(shown(column(name, key), digits) for key, digits in figures.items())] for name in found]
    lines += table(["", "messages/s", "CPU µs each", "peak MB", "on disk, MB", "written, MB", "keys read back"], rows)
    own = [name for name in found if column(name, "tenths")]
    lines += ["", "Thousands of messages a second in each tenth of the run:", ""]
    tenths = {name: [statistics.median(part) for part in zip(*column(name, "tenths"))] for name in own}
    lines += table(["", *(str(n + 1) for n in range(TENTHS))], [[name, *(f"{rate / 1e3:,.0f}" for rate in tenths[name])] for name in own])
    lines += [""]
    for name in own:
        first, last = (statistics.mean(part) for part in (tenths[name][:2], tenths[name][-2:]))
        lines.append(bar(last >= first * 2 / 3, f"{name}: the last fifth has {last / max(first, 1):.2f} of the rate of the first, at least 0.67 wanted"))
    if a.datagen:
        best = max(statistics.median(column(name, "rate")) for name in own)
        lines.append(bar(best >= AIM, f"{best / 1e6:.2f} million messages a second, {AIM / 1e6:g} is the aim"))
    others = {name: statistics.median(column(name, "rate")) for name in found if name not in own}
    if others:
        best = max(others, key=others.get)
        memory = statistics.median(column(best, "peak"))
        for name in own:
            times, peak = statistics.median(column(name, "rate")) / others[best], statistics.median(column(name, "peak"))
            lines.append(bar(times >= TIMES_SAMZA, f"{name}: {times:.1f} times the rate of {best}, {TIMES_SAMZA} wanted"))
            lines.append(bar(peak < memory, f"{name}: peak {peak:,.0f} MB, {best} {memory:,.0f} MB, less wanted"))
    return lines


def main(a):
    needs(TIDEMILL)
    failures = []
    if a.datagen:
        cells = {f"datagen, parallelism {n}": lambda n=n: ours("local-store.sql", {"ROWS": a.keys}, n, a) for n in a.parallelism}
        found = rounds(a, cells, failures)
        finish(report(a, found, "from datagen") if found else [], failures, a.out)
    with broker.Broker(a.running) as kafka:
        if not a.full:
            # One after the other, so that partitions are equally long.
            kafka.fill("produce-raw.sql", TOPIC, PARTITIONS, a.keys, {"SINK": broker.sink(TOPIC, "raw", ", 'sink.partitioner' = 'round-robin'")})
        values = {"TOPIC": TOPIC, "SERVERS": broker.SERVERS}
        if a.sink == "kafka":
            kafka.topic("e5-counts", PARTITIONS)
            values.update(SINK=UPSERTS.format(servers=broker.SERVERS), KEY=", PRIMARY KEY (k) NOT ENFORCED")
        cells = {f"ours, parallelism {n}": lambda n=n: ours("store-kafka.sql", values, n, a) for n in a.parallelism}
        if broker.SAMZA:
            for way in filter(None, map(str.strip, a.samza.split(","))):
                threads, in_flight = way.split()
                name = f"Samza, {threads} threads, {in_flight} in flight"
                cells[name] = lambda t=threads, i=in_flight: broker.samza("rocks", t, i, min(a.samza_keys, a.keys), TOPIC)
        found = rounds(a, cells, failures)
        lines = report(a, found, f"from {PARTITIONS} partitions") if found else []
    if broker.SAMZA and lines:
        lines += ["", f"Samza counted the first {min(a.samza_keys, a.keys):,} messages."]
    finish(lines, failures, a.out)
