"""Restarts from a large state, and how long its checkpoints stop the flow.

  benches/e5.py restart [--gb 10] [--rate 40000] [--seconds 60] [--state DIR]

A job counts keys of 100 bytes until its state is as large as asked for, and is stopped. Then, each round: it is started on that
state at --rate messages a second, which come back to keys on disk in an order that jumps about, with a checkpoint every
--interval; after --seconds it is killed (kill -9). What is measured:

  first row      from the start of the process to the first row on its standard output, its reading of the checkpoint included
  delay          how much later than due a row came out, over the least such delay; rows come as on a time-table, so a stop
                 of the flow anywhere delays those that were due meanwhile, and the largest delay is the longest stop
  checkpoints    how many were finished in that time
  still          for how long the machine itself stood still, in the longest stop and in all: not even a thread of real-time
                 priority ran for 10 ms and more (asked as root only). A virtual machine stands still when it has used up its quota of
                 processor time, or while its host takes memory back; what piles up meanwhile makes a stop longer still
  slow memory    for how long the machine's memory was slow: ten pages of a quarter of a gigabyte that nobody else uses took more
                 than ten times as long to read as they mostly do. So it may be, for all that runs on a virtual machine, while its
                 host takes back memory that was freed, or gives it again
  well           the longest stop, what piled up meanwhile included, of which the machine stood still or had slow memory for less than
                 a tenth: that one is the job's own

Delays of the first --settle seconds do not count. Before each round nothing is done for --rest seconds: memory of the process
that was killed goes back to the host then. With --state the directory is kept, and used again by the next run with the same
--gb if it holds a state. --cold drops the system's page cache before each start (as root).
"""

import math
import mmap
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from common import Job, TIDEMILL, bar, finish, machine, needs, out_option, say, shown, table

# Bytes that a key takes on disk, about: 100 of its own, count and newest id, hash, length.
ROW_BYTES = 135
# Rows that show themselves, a second: a pause is seen to about 2 ms.
SHOWN = 500
FIRST_S_WANTED = 10
PAUSE_MS_WANTED = 100


# How often the machine is asked whether it runs at all, and how much later than due it may answer.
WAKES_EVERY, WAKES_LATE = 0.002, 0.01
# Memory of which so many pages are read each time, and how many times their median they may take.
PROBED_BYTES, PROBED_PAGES, PROBED_SLOW = 256 << 20, 10, 10
# The machine is not well in a stop of which it stood still or had slow memory for more than this part.
UNWELL_PART = 0.1
# Rows that are later than this belong to a stop.
STOP_S = 0.02


def wake(end):
    """Wakes up now and then before all other threads of the machine, and reads some memory, until told to end.

    Sends (times at which it should have woken, seconds too late) and (times of reading, seconds that took).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    late, reads = [], []
    memory = mmap.mmap(-1, PROBED_BYTES)
    for at in range(0, PROBED_BYTES, mmap.PAGESIZE):
        memory[at] = 1
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    except OSError:
        late = reads = None
    due = time.monotonic()
    try:
        while not end.poll(max(0.0, due - time.monotonic())):
            woken = time.monotonic()
            pages = [random.randrange(0, PROBED_BYTES, mmap.PAGESIZE) for _ in range(PROBED_PAGES)]
            begun = time.monotonic()
            for at in pages:
                memory[at]
            ended = time.monotonic()
            if late is not None:
                if woken - due > WAKES_LATE:
                    late.append((due, woken - due))
                reads.append((begun, ended - begun))
            due = time.monotonic() + WAKES_EVERY
        end.recv()
        end.send((late, reads))
    except (EOFError, OSError):  # the bench is gone
        pass


class Machine:
    """When the machine stood still, and when its memory was slow: a process of its own asks, which no other thread holds up."""

    def __init__(self):
        self.ours, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=wake, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        # Both as (begin, end); none where nobody may ask.
        self.still = self.slow = None

    def end(self):
        try:
            self.ours.send(None)
            late, reads = self.ours.recv()
        except (EOFError, OSError):
            late = reads = None
        self.process.join()
        if late is None or not reads:
            return
        self.still = [(at, at + long) for at, long in late]
        slow = PROBED_SLOW * statistics.median(long for _, long in reads)
        # Until it is asked for the next time.
        self.slow = [(at, next_at) for (at, long), (next_at, _) in zip(reads, reads[1:]) if long > slow]

    @staticmethod
    def seconds(spans, begun, ended):
        """Of these spans between two times; not a number where nobody may ask."""
        if spans is None:
            return math.nan
        return sum(max(0.0, min(to, ended) - max(since, begun)) for since, to in spans)

    def was_well(self, begun, ended):
        """Whether it stood still or had slow memory for less than a tenth of the time between two times."""
        return self.seconds(self.still, begun, ended) + self.seconds(self.slow, begun, ended) < UNWELL_PART * (ended - begun)


def options(p):
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--gb", type=float, default=10, help="size of the state")
    # What two processors keep up with while filters and merges that a restart brings go on.
    p.add_argument("--rate", type=int, default=40_000, help="messages a second after the restart")
    p.add_argument("--seconds", type=float, default=60, help="of a round")
    p.add_argument("--settle", type=float, default=5, help="seconds after the first row whose delays do not count")
    p.add_argument("--rest", type=float, default=25, help="seconds before each round")
    p.add_argument("--interval", default="10 s", help="between checkpoints")
    p.add_argument("--memory", default="2GB")
    p.add_argument("--parallelism", type=int, default=2)
    p.add_argument("--state", help="a directory for the state, which is kept")
    p.add_argument("--cold", action="store_true")
    out_option(p, "restart")


def job(a, state, keys, rate, out):
    values = {"KEYS": keys, "RATE": rate, "EVERY": max(1, a.rate // SHOWN)}
    arguments = ["--parallelism", str(a.parallelism), "--memory", a.memory, "--state-dir", state, "--set", f"execution.checkpointing.interval={a.interval}"]
    return Job("restart.sql", values, *arguments, out=out)


def checkpoints(state):
    """Numbers of the checkpoints that are there."""
    names = os.listdir(state) if os.path.isdir(state) else []
    return [int(n[4:]) for n in names if n.startswith("chk-") and n[4:].isdigit()]


def size(state):
    """Bytes of the newest checkpoint."""
    total = 0
    for directory, _, names in os.walk(os.path.join(state, f"chk-{max(checkpoints(state))}")):
        total += sum(os.path.getsize(os.path.join(directory, name)) for name in names)
    return total


def fill(a, state, keys):
    """Counts every key once, as fast as it goes, and stops."""
    filling = job(a, state, keys, 0, subprocess.DEVNULL)
    said = 0.0
    try:
        while filling.rows() < keys and filling.process.poll() is None:
            time.sleep(0.2)
            if filling.samples[-1][0] > said + 10:
                said = filling.samples[-1][0]
                say(f"filling: {filling.rows() / keys:.0%} of {keys:,} keys after {said:.0f} s")
        if filling.process.returncode is not None:
            raise RuntimeError("the job that fills the state has ended: " + "\n".join(filling.told)[-800:])
        filling.stop()
        done = filling.wait()
    except BaseException:
        filling.kill()
        raise
    say(f"filled in {done['elapsed_s']:.0f} s, peak {done['peak_mb']:,.0f} MB, {size(state) / 1e9:.2f} GB")
    return done


def round_of(a, state, keys):
    """A start, --seconds of rows, a kill."""
    if a.cold:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
    before = max(checkpoints(state))
    asked = Machine()  # before there are threads
    running = job(a, state, keys, a.rate, subprocess.PIPE)
    seen, ends = [], threading.Event()

    def read():
        # `+I[123]`, with the writer's number in front if there are several; what is taken back begins with `-`.
        for line in running.process.stdout:
            now = time.monotonic()
            kind = line.find(b"+")
            if kind >= 0:
                seen.append((now, int(line[line.index(b"[", kind) + 1 : line.rindex(b"]")])))
        ends.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while not seen and not ends.wait(0.01) and time.monotonic() < running.begun + 600:
            pass
        ends.wait(a.seconds if seen else 0)
        taken = max(checkpoints(state)) - before
    finally:
        running.kill()
        asked.end()
    reader.join(timeout=10)
    if not seen or seen[-1][0] - seen[0][0] < a.seconds / 2:
        raise RuntimeError("\n".join(running.told)[-800:] or "the job ended too early")
    return {"first": seen[0][0] - running.begun, "checkpoints": taken, **delays(seen, asked, a)}


def delays(seen, asked, a):
    """Milliseconds that rows came later than due, when that was longest, in seconds after the first, and how the machine was."""
    late = [(at - row / a.rate, at) for at, row in seen if at >= seen[0][0] + a.settle]
    least = min(late)[0] if late else 0.0
    late = [(delay - least, at) for delay, at in late]
    ms = sorted(delay * 1e3 for delay, _ in late)
    if len(ms) < 100:
        raise RuntimeError(f"only {len(ms)} rows came out in time")
    quantile = lambda q: ms[min(len(ms) - 1, int(len(ms) * q))]
    behind = statistics.median(delay for delay, at in late if at > seen[-1][0] - 1)
    longest, ended = max(late)
    since, until = seen[0][0] + a.settle, seen[-1][0]
    well = math.nan
    if asked.still is not None:
        well = max((delay for delay, begun, ended in stops(late) if asked.was_well(begun, ended)), default=min(longest, STOP_S))
    return {
        "p50": quantile(0.5), "p99": quantile(0.99), "worst": ms[-1], "worst after": ended - seen[0][0],
        "still": asked.seconds(asked.still, ended - longest, ended) * 1e3,
        "stood": asked.seconds(asked.still, since, until) * 1e3,
        "slow": asked.seconds(asked.slow, since, until) * 1e3,
        "well": well * 1e3, "behind": behind * 1e3,
    }


def stops(late):
    """Rows in turn that were late, what piled up meanwhile included: (longest delay, since when the first was due, until the last)."""
    begun, longest, last = None, 0.0, 0.0
    for delay, at in [*late, (0.0, math.inf)]:
        if delay > STOP_S:
            begun = min(begun or at, at - delay)
            longest, last = max(longest, delay), at
        elif begun is not None:
            yield longest, begun, last
            begun, longest = None, 0.0


def main(a):
    needs(TIDEMILL)
    keys = int(a.gb * 1e9 / ROW_BYTES)
    # The jumps must not leave keys out.
    keys += keys % 7919 == 0
    state = a.state or tempfile.mkdtemp(prefix="e5-restart-")
    cells, failures = [], []
    try:
        if not checkpoints(state):
            fill(a, state, keys)
        bytes_ = size(state)
        for number in range(a.rounds):
            time.sleep(a.rest)
            try:
                cells.append(round_of(a, state, keys))
            except RuntimeError as e:
                failures.append(str(e))
                say(f"FAILED {e}")
                continue
            say(number, {key: round(v, 2) for key, v in cells[-1].items()})
    except RuntimeError as e:
        sys.exit(f"e5.py: {e}")
    finally:
        if not a.state:
            shutil.rmtree(state, ignore_errors=True)
    lines = [
        "# E5, restart", "",
        f"{machine()} {keys:,} keys, a checkpoint of {bytes_ / 1e9:.2f} GB, --memory {a.memory}, {a.parallelism} shards, {a.rate:,} messages a second for "
        f"{a.seconds:g} s, a checkpoint every {a.interval}{', page cache dropped before each start' if a.cold else ''}.", "",
        f"Medians of {a.rounds} rounds, the range behind them.", "",
    ]
    if cells:
        heads = {
            "first": "first row, s", "checkpoints": "checkpoints", "p50": "delay p50, ms", "p99": "p99", "worst": "longest stop, ms",
            "still": "of it the machine stood still, ms", "stood": "the machine stood still in all, ms",
            "slow": "memory slow in all, ms", "well": "longest stop while the machine was well, ms", "behind": "delay in the last second, ms",
        }
        column = lambda key: [cell[key] for cell in cells]
        lines += table(list(heads.values()), [[shown(column(key), 0 if key == "checkpoints" else 2) for key in heads]]) + [""]
        first, worst = max(column("first")), max(column("worst"))
        lines.append(bar(first < FIRST_S_WANTED, f"the first row after a restart came within {first:.2f} s, under {FIRST_S_WANTED} wanted"))
        lines.append(bar(worst < PAUSE_MS_WANTED, f"the flow never stopped for more than {worst:.0f} ms, under {PAUSE_MS_WANTED} wanted"))
        well = max((ms for ms in column("well") if not math.isnan(ms)), default=math.nan)
        if worst >= PAUSE_MS_WANTED and not math.isnan(well):
            lines.append(bar(well < PAUSE_MS_WANTED, f"while the machine was well, it never stopped for more than {well:.0f} ms"))
        if min(column("checkpoints")) == 0:
            lines.append(bar(False, "a round had no checkpoint; let it last longer"))
        if statistics.median(column("behind")) > 1000:
            lines += ["", f"The job does not keep up with {a.rate:,} messages a second, so delays are not stops: give a lower --rate."]
    finish(lines, failures, a.out)
