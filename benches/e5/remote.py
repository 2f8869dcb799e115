"""E5, remote I/O: lookups on a server that answers after 1 to 200 ms.

  cargo build --release -p tidemill-remote --example delay_server
  benches/e5.py remote [--rounds 3] [--seconds 20] [--only 10,300,adaptive] [--delay 1-200] [--check | --slow 200]

Ten partitions; one lookup after the other, 10, 30, 100, 300 and 1,000 under way, as many as the job finds out itself, and 1
and 3 under way for each partition; in order and in any order. Every cell is a fresh job against the same server; rounds go over all
cells in turn. A cell's rows are as many as keep it busy for about --seconds. A table, with medians:

  rate        rows a second, over the whole run
  of linear   the rate against N / mean delay, what N calls that are always under way give
  CPU         user and system time of the job's process, in microseconds a call; the server's is not in it
  running     the same without the first second, in which the process starts

--check instead lets the job write its rows to standard output, in order, and compares them with what they must be.

--slow N instead lets the job find out how many calls pay, then has the server work on N of them at once for a while, and then on
as many as come again. The server tells how many are there; those beyond N only wait.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from common import HERE, RELEASE, TIDEMILL, Job, bar, finish, machine, needs, out_option, say, shown, table

SERVER = os.environ.get("DELAY_SERVER", f"{RELEASE}/examples/delay_server")
PARTITIONS = 10
# Rows that datagen gives a partition before the next one's turn: fewer in all would not reach all partitions.
CHUNK = 1024

# name: (options of the table, calls under way for the rows that keep it busy)
CELLS = {
    "sequential": ("'lookup.async' = 'false'", 1),
    "10": ("'lookup.capacity' = '10'", 10),
    "30": ("'lookup.capacity' = '30'", 30),
    "100": ("'lookup.capacity' = '100'", 100),
    "300": ("'lookup.capacity' = '300'", 300),
    "1000": ("'lookup.capacity' = '1000'", 1000),
    "1 a partition": ("'lookup.capacity' = '1000', 'lookup.max-concurrency-per-partition' = '1'", PARTITIONS),
    "3 a partition": ("'lookup.capacity' = '1000', 'lookup.max-concurrency-per-partition' = '3'", 3 * PARTITIONS),
    "adaptive": ("", 1000),
}
MODES = {"ordered": "ordered", "any order": "allow_unordered"}


class Server:
    """The server, listening when the constructor is done."""

    def __init__(self, least, most, seed):
        command = [SERVER, "0", str(least), str(most), str(seed)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit("e5.py: the server did not start")
        self.port = int(line)

    def slots(self, slots):
        """Has it work on so many requests at once."""
        self.process.stdin.write(f"slots {slots}\n")
        self.process.stdin.flush()

    def now(self):
        """Requests that are there, and how many were answered so far."""
        self.process.stdin.write("now\n")
        self.process.stdin.flush()
        there, answered = self.process.stdout.readline().split()
        return int(there), int(answered)

    def end(self):
        """What it answered: requests and the CPU they cost."""
        out, _ = self.process.communicate(timeout=60)
        return json.loads(out.strip().splitlines()[-1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def cpu_clock(pid):
    """CPU seconds of a process so far, to the nanosecond: Linux makes the number of its clock from that of the process."""
    return time.clock_gettime(~pid << 3 | 2)


def run(server, options, mode, rows, sink="blackhole", out=subprocess.DEVNULL):
    """Seconds, CPU seconds and peak MB of a job, and CPU seconds a call after the first second; its peak as it says it itself,
    because that of `wait4` is at least ours."""
    with tempfile.NamedTemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.json")
        command = [TIDEMILL, "run", "-q", "--parallelism", "1", f"{HERE}/remote-io.sql", "--metrics", metrics]
        values = {"ROWS": rows, "PORT": server.port, "MODE": mode, "SINK": sink, "PARTITIONS": PARTITIONS, "OPTIONS": f", {options}" if options else ""}
        for key, value in values.items():
            command += ["-D", f"{key}={value}"]
        begun = time.monotonic()
        answered_before = server.now()[1]
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        time.sleep(1)
        started, answered = cpu_clock(process.pid), server.now()[1]
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.monotonic() - begun
        cpu = usage.ru_utime + usage.ru_stime
        left = rows - (answered - answered_before)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise RuntimeError(errors.read().strip()[-500:])
        with open(metrics) as file:
            peak = json.load(file)["peak_memory_bytes"] / 2**20
    return elapsed, cpu, peak, (cpu - started) / left if left > 0 else None


def check(server, rows):
    """The rows of an ordered run in one partition, which must come out in the order of their numbers."""
    global PARTITIONS
    PARTITIONS = 1
    with tempfile.NamedTemporaryFile("w+") as out:
        run(server, CELLS["300"][0], "ordered", rows, "print", out)
        out.seek(0)
        expect = (f"+I[{n}, n{n}]" for n in range(rows))
        count = 0
        for line, wanted in zip(out, expect):
            if line.strip() != wanted:
                sys.exit(f"e5.py: {line.strip()} came instead of {wanted}")
            count += 1
        if count != rows or out.readline():
            sys.exit(f"e5.py: {count} rows came instead of {rows}")
    print(f"{rows} rows came out in their order")


def slow(server, a, mean_s):
    """An adaptive job while the server becomes slow and fast again: of each stretch the calls that are there and the rate, both in
    its last third, and when the calls first were near those."""
    stretches = {"fast": 1 << 20, "slow": a.slow, "fast again": 1 << 20}
    values = {"ROWS": 1 << 40, "PORT": server.port, "MODE": "allow_unordered", "SINK": "blackhole", "PARTITIONS": PARTITIONS, "OPTIONS": ""}
    job = Job("remote-io.sql", values, "--parallelism", "1")
    rows = []
    try:
        for name, slots in stretches.items():
            server.slots(slots)
            begun, samples = time.monotonic(), []
            while (at := time.monotonic() - begun) < a.seconds:
                if job.process.poll() is not None:
                    raise RuntimeError("\n".join(job.told)[-800:])
                samples.append((at, *server.now()))
                time.sleep(0.1)
            last = [sample for sample in samples if sample[0] > a.seconds * 2 / 3]
            there = statistics.median(sample[1] for sample in last)
            rate = (last[-1][2] - last[0][2]) / (last[-1][0] - last[0][0])
            # It goes on trying a little more and less, so near is within a third.
            near = next((at for at, now, _ in samples if there / 1.33 <= now <= there * 1.33), a.seconds)
            rows.append((name, slots, there, rate, near))
            say(rows[-1])
    finally:
        job.kill()
    lines = [
        "# E5, remote I/O, a server that becomes slow", "",
        f"{machine()} One shard; answers after {a.delay} ms, mean {mean_s * 1000:.1f} ms; stretches of {a.seconds:g} s.", "",
    ]
    known = lambda slots: "any" if slots > 10_000 else f"{slots:,}"
    lines += table(["server", "works on", "calls there", "answers/s", "of what it can", "near after, s"], [
        [name, known(slots), f"{there:,.0f}", f"{rate:,.0f}", f"{rate * mean_s / min(slots, there):.2f}", f"{near:.1f}"] for name, slots, there, rate, near in rows])
    (_, _, fast, _, near), (_, slots, there, rate, _), (_, _, again, _, _) = rows
    lines += [
        "",
        bar(near <= 10, f"it was near what it settled at after {near:.1f} s, 10 wanted"),
        bar(there <= 2 * slots, f"{there:,.0f} calls were there when the server worked on {slots:,} at once"),
        bar(rate * mean_s >= 0.9 * slots, f"the slow server was kept busy: {rate * mean_s / slots:.2f} of what it can"),
        bar(again >= 0.9 * fast, f"{again:,.0f} calls were there when it was fast again, {fast:,.0f} before"),
    ]
    finish(lines, [], a.out)


def options(p):
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--only", help="cells, separated by commas; all by default")
    p.add_argument("--delay", default="1-200", help="milliseconds, from-to")
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--check", action="store_true", help="see that ordered output is in order, and measure nothing")
    p.add_argument("--slow", type=int, metavar="N", help="a server that becomes slow: it works on N calls at once")
    out_option(p, "remote-io")


def main(a):
    least, most = (int(ms) for ms in a.delay.split("-"))
    names = list(CELLS) if a.only is None else [n.strip() for n in a.only.split(",")]
    unknown = [n for n in names if n not in CELLS]
    if unknown:
        sys.exit(f"e5.py: no cell {unknown[0]!r}; there are: {', '.join(CELLS)}")
    for program in (TIDEMILL, SERVER):
        needs(program)
    # A thousand connections on both sides.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20_000, hard) if hard != resource.RLIM_INFINITY else 20_000, hard))
    mean_s = (least + most) / 2000
    with Server(least, most, a.seed) as server:
        if a.check:
            check(server, 5000)
            return
        if a.slow:
            slow(server, a, mean_s)
            return
        found, failures = {}, []
        for round_ in range(a.rounds):
            for name in names:
                options, under_way = CELLS[name]
                rows = max(20, int(under_way / mean_s * a.seconds))
                if "per-partition" in options:
                    rows = max(rows, PARTITIONS * CHUNK)
                for mode, value in MODES.items():
                    try:
                        elapsed, cpu, peak, running = run(server, options, value, rows)
                    except RuntimeError as e:  # one cell that fails shall not lose the others
                        failures.append(f"{name}, {mode}: {e}")
                        say(f"FAILED {failures[-1]}")
                        continue
                    cell = {"rate": rows / elapsed, "linear": rows / elapsed * mean_s / under_way, "cpu": cpu / rows * 1e6, "peak": peak}
                    if running is not None:
                        cell["running"] = running * 1e6
                    found.setdefault((name, mode), []).append(cell)
                    say(round_, name, mode, {key: round(v, 3) for key, v in cell.items()})
        served = server.end()
    lines = [
        "# E5, remote I/O", "",
        f"{machine()} One shard, {PARTITIONS} partitions; answers after {least} to {most} ms, mean {mean_s * 1000:.1f} ms; server on the same machine.", "",
        f"Medians of {a.rounds} rounds, the range behind them.", "",
    ]
    rows = []
    for name in names:
        for mode in MODES:
            cells = found.get((name, mode), [])
            column = lambda key: [cell[key] for cell in cells if key in cell]
            # What the job finds out itself has no N.
            linear = "–" if name == "adaptive" else shown(column("linear"), 2)
            rows.append([name, mode, shown(column("rate")), linear, shown(column("cpu"), 1), shown(column("running"), 1), shown(column("peak"))])
    lines += table(["under way", "order", "rows/s", "of linear", "CPU µs/call", "running", "peak MB"], rows)
    best = max((statistics.median(c["rate"] for c in cells) for (name, _), cells in found.items() if name != "adaptive"), default=0)
    own = [statistics.median(c["rate"] for c in cells) for (name, _), cells in found.items() if name == "adaptive"]
    if best and own:
        lines += ["", f"Adaptive reaches {max(own) / best:.2f} of the best fixed setting, its way there included."]
    if served["cpu_s"] is not None and served["requests"]:
        lines += ["", f"The server answered {served['requests']:,} requests with {served['cpu_s'] / served['requests'] * 1e6:.1f} µs of CPU each."]
    finish(lines, failures, a.out)
