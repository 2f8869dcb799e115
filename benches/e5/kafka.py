"""Kafka: messages of 100 bytes consumed into columns and raw, and produced.

  benches/e5.py kafka [--rows 20000000] [--parallelism 1] [--pin 0]

Needs KAFKA_PEER. Cells take turns against one broker on this machine, topics of 8 partitions. Columns:

  messages/s     while the job ran (its start and end excepted)
  a CPU second   messages a second of CPU of the job's process, all threads counted, so those of the client library, too:
                 the rate of a core
  broker         CPU of the broker, microseconds a message

"making up" is the part of producing that is not Kafka's: the same rows to nowhere. "Java" is Kafka's own performance tools
(acks=1, batches of 64 KB, 5 ms of linger, no compression; bytes only, nothing decoded). --pin N keeps our jobs on
processor N, so that messages/s is the rate of a core as well.
"""

import re
import resource
import statistics
import sys

import broker
from common import TIDEMILL, bar, finish, machine, needs, numbers, out_option, run, say, shown, table

PARTITIONS = 8
# what: the rate that is to be reached
WANTED = {"consume json": 1e6, "consume raw": 3e6, "produce json": 1e6, "produce raw": 1e6}


def options(p):
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--rows", type=int, default=20_000_000)
    p.add_argument("--parallelism", type=numbers, default=[1], help="such as 1,2")
    p.add_argument("--pin", type=int, help="a processor for our jobs")
    p.add_argument("--only", help="such as 'consume raw,Java consume'; all by default")
    p.add_argument("--source-options", default="", help="further options of the tables read, such as \"'scan.prefetch' = '64 mb'\"")
    p.add_argument("--sink-options", default="", help="of those written, such as \"'properties.linger.ms' = '20'\"")
    p.add_argument("--running", action="store_true", help="use the broker that runs")
    out_option(p, "kafka")


def further(options_):
    return f", {options_}" if options_.strip() else ""


def measured(kafka, rows, once):
    """A cell: `once` gives seconds, CPU seconds, peak MB."""
    before = kafka.cpu()
    elapsed, used, peak = once()
    return {"rate": rows / elapsed, "per_cpu": rows / used if used else 0.0, "broker": (kafka.cpu() - before) / rows * 1e6, "peak": peak}


def ours(sql, values, shards, a):
    done = run(sql, values, "-q", "--parallelism", str(shards), pin=a.pin)
    if (done["rows_in"], done["rows_out"]) != (a.rows, a.rows):
        raise RuntimeError(f"{done['rows_in']} messages came and {done['rows_out']} went instead of {a.rows}")
    return done["elapsed_s"], done["cpu_s"], done["peak_mb"]


def java(kafka, rows, *arguments):
    """Kafka's own tools, by the rate that they tell."""
    def children():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = children()
    said = kafka.kafka(*arguments)
    # `… records/sec`, or fields of which the tenth is the rate without the time of joining a group.
    found = re.search(r"([\d.]+) records/sec", said)
    fields = said.strip().split(",")
    if not found and len(fields) < 10:
        raise RuntimeError(f"kafka.sh {arguments[0]} said {said.strip()!r}")
    rate = float(found[1]) if found else float(fields[9])
    return rows / rate, children() - before, float("nan")


def cells(kafka, a):
    """name: a function that gives seconds, CPU seconds and peak MB; it may write to the empty topic that it is told."""
    made = {}
    for format_ in ("json", "raw"):
        for shards in a.parallelism:
            suffix = f", parallelism {shards}" if len(a.parallelism) > 1 else ""

            def consume(_new, format_=format_, shards=shards):
                values = {"TOPIC": f"e5-{format_}", "SERVERS": broker.SERVERS, "OPTIONS": further(a.source_options)}
                return ours(f"consume-{format_}.sql", values, shards, a)

            def produce(new, format_=format_, shards=shards):
                return ours(f"produce-{format_}.sql", {"ROWS": a.rows, "SINK": broker.sink(new, format_, further(a.sink_options))}, shards, a)

            def make(_new, format_=format_, shards=shards):
                return ours(f"produce-{format_}.sql", {"ROWS": a.rows, "SINK": "'connector' = 'blackhole'"}, shards, a)

            made[f"consume {format_}{suffix}"] = consume
            made[f"produce {format_}{suffix}"] = produce
            made[f"making up {format_}{suffix}"] = make
    made["Java consume"] = lambda _new: java(kafka, a.rows, "consume", "e5-raw", a.rows)
    made["Java produce"] = lambda new: java(kafka, a.rows, "produce", new, a.rows, 100)
    if a.only is None:
        return made
    names = [n.strip() for n in a.only.split(",")]
    unknown = [n for n in names if not any(name.startswith(n) for name in made)]
    if unknown:
        sys.exit(f"e5.py: no cell begins with {unknown[0]!r}; there are: {', '.join(made)}")
    return {name: once for name, once in made.items() if any(name.startswith(n) for n in names)}


def main(a):
    needs(TIDEMILL)
    found, failures = {}, []
    with broker.Broker(a.running) as kafka:
        made = cells(kafka, a)
        for format_ in ("json", "raw"):
            kafka.fill(f"produce-{format_}.sql", f"e5-{format_}", PARTITIONS, a.rows, {"SINK": broker.sink(f"e5-{format_}", format_)})
        for round_ in range(a.rounds):
            for number, (name, once) in enumerate(made.items()):
                new = f"e5-new-{round_}-{number}" if "produce" in name else None
                try:
                    if new:
                        kafka.topic(new, PARTITIONS)
                    cell = measured(kafka, a.rows, lambda: once(new))
                except RuntimeError as e:
                    failures.append(f"{name}: {e}")
                    say(f"FAILED {failures[-1]}")
                    continue
                finally:
                    if new:
                        kafka.delete(new)
                found.setdefault(name, []).append(cell)
                say(round_, name, {key: round(v, 2) for key, v in cell.items()})
    pinned = f", our jobs on processor {a.pin} alone" if a.pin is not None else f", parallelism {','.join(map(str, a.parallelism))}"
    lines = ["# Kafka", "", f"{machine()} {a.rows:,} messages of 100 bytes, {PARTITIONS} partitions, broker on the same machine{pinned}.", ""]
    lines += [f"Medians of {a.rounds} rounds, the range behind them.", ""]
    column = lambda name, key: [cell[key] for cell in found[name] if cell[key] == cell[key]]
    figures = {"rate": 0, "per_cpu": 0, "broker": 2, "peak": 0}
    rows = [[name, *(shown(column(name, key), digits) for key, digits in figures.items())] for name in found]
    lines += table(["", "messages/s", "a CPU second", "broker, CPU µs each", "peak MB"], rows) + [""]
    for name in found:
        wanted = WANTED.get(name.split(",")[0])
        if wanted:
            rate, core = statistics.median(column(name, "rate")), statistics.median(column(name, "per_cpu"))
            # Of reading so much is wanted of a core, of writing of the job.
            reached = core if name.startswith("consume") else rate
            lines.append(bar(reached >= wanted, f"{name}: {rate / 1e6:.2f} million a second, {core / 1e6:.2f} million a CPU second, {wanted / 1e6:g} wanted"))
    finish(lines, failures, a.out)
