#!/usr/bin/env python3
"""Experiment E4 over TCP: our jobs and Siddhi, on this machine, in turn.

  mvn -q -f tests/siddhi/pom.xml package
  SIDDHI_PEER=<directory of the peer, built with mvn package> benches/e4.py [--rounds 3] [--only pass,goal] [--quick]

The peer is a directory with classes and jars of Siddhi's measured server and client (peer.TcpServer, peer.TcpClient);
the client speaks the channels inputStream and ctl. Every cell is a fresh process, rounds go over all cells in turn, and
the table holds medians, with the range behind them. Columns of events a second:

  Siddhi         its server, its client
  their client   our job, Siddhi's client (so the client is often the bound)
  ours           our job, and our publisher: the job e4/send.sql for streams of (long, float), otherwise frames made before
                 and sent again and again with a timestamp of -1, so that the job stamps them

Latency is from the publisher's clock, put into the first value of each event, to the sink, at 100,000 events a second in
frames of 16; "busy" is ours with worker.busy-poll, which spends a processor on not having to be woken. Siddhi's aggregating queries emit once a frame (by groups: once for each group in it), ours once an event, so
ours do more here; "folded" is ours with one answer a frame, for the query without groups the same rows as Siddhi's.
"""

import argparse
import contextlib
import datetime
import json
import os
import random
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TIDEMILL = os.environ.get("TIDEMILL", os.path.join(os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target"), "release/tidemill"))
PEER = os.environ.get("SIDDHI_PEER", "")
LOAD = os.environ.get("SIDDHI_LOAD", f"{ROOT}/tests/siddhi/target")
POOL = 1 << 16  # events made before, as many as Siddhi's client has
MARK = "ctl> +I["
BUSY = "500 us"  # how long "busy" looks for more before it sleeps
PATIENCE = 60  # seconds that a process may take to start or to end
RUN_MAX = 600  # seconds that one run may take

# name: (our job, its definitions, the kind of events, Siddhi's app, the column with the publisher's clock)
QUERIES = {
    "pass": ("pass.sql", {}, "simple", "pass", "iijtimestamp"),
    "filter 1": ("filter.sql", {"LIMIT": "1"}, "simple", "filter100", "iijtimestamp"),
    "filter 0.5": ("filter.sql", {"LIMIT": "0.5"}, "simple", "filter50", "iijtimestamp"),
    "filter 0.25": ("filter.sql", {"LIMIT": "0.25"}, "simple", "filter25", "iijtimestamp"),
    "time 1 s": ("time.sql", {"SPAN": "'1' SECOND"}, "simple", "time1s_avg", "iijtimestamp"),
    "time 1 s folded": ("time.sql", {"SPAN": "'1' SECOND", "FOLD": "WHERE `last`"}, "simple", "time1s_avg", "iijtimestamp"),
    "VWAP 1 s": ("vwap.sql", {}, "trades", "vwap_time", "iijtimestamp"),
    "goal": ("goal.sql", {"SKIP": "PAST LAST ROW"}, "game", "goal", "iij_timestamp"),
    "goal every": ("goal.sql", {"SKIP": "TO NEXT ROW"}, "game", "goal_every", "iij_timestamp"),
    "goal waiting": ("goal.sql", {"SKIP": "TO NEXT ROW"}, "waiting", "goal_every_deep", "iij_timestamp"),
}
# The share of events that fit the first and the second step of the goal, by kind; the second leaves about 500 matches waiting.
GOALS = {"game": (0.01, 0.002), "waiting": (0.05, 0.0001)}
# Queries in which Siddhi cannot keep up with the rate at which latency is measured.
NO_LATENCY = {"goal waiting"}
MINUTE = ("time.sql", {"SPAN": "'1' MINUTE"}, "simple", "time1m_avg", "iijtimestamp")
MINUTES = {"time 1 min": MINUTE, "time 1 min folded": (MINUTE[0], {**MINUTE[1], "FOLD": "WHERE `last`"}, *MINUTE[2:])}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(command, **options):
    """A process with a session of its own, so that it ends together with what it starts."""
    return subprocess.Popen(command, start_new_session=True, **options)


def end(process):
    """Ends a process of `start` at once, if it has not ended."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


@contextlib.contextmanager
def running(command, **options):
    """A process that does not outlive the block."""
    process = start(command, **options)
    try:
        yield process
    finally:
        end(process)


def finish(command, **options):
    """What a command prints; it must end well."""
    with running(command, stdout=subprocess.PIPE, text=True, **options) as process:
        out, _ = process.communicate(timeout=RUN_MAX)
        if process.returncode != 0:
            raise RuntimeError(f"{os.path.basename(command[0])} ended with {process.returncode}")
        return out


def flags(options):
    return [part for key, value in options.items() for part in (f"--{key}", str(value))]


def java(classes, main):
    # The same heap for every client: one that collects its garbage is late.
    return ["java", "-Xms2g", "-Xmx4g", "-cp", f"{classes}/classes:{classes}/lib/*", main]


def peer(main, options):
    return java(f"{PEER}/target", f"peer.{main}") + flags(options)


class Job:
    """Our job in a process of its own; listens when the constructor is done."""

    def __init__(self, query, clock=False, busy=False):
        name, defines, _, _, column = query
        self.port = free_port()
        self.dir = tempfile.TemporaryDirectory()
        self.metrics = f"{self.dir.name}/metrics.json"
        self.out = open(f"{self.dir.name}/out", "w+")
        self.errors = open(f"{self.dir.name}/errors", "w+")
        command = [TIDEMILL, "run", "-q", "--parallelism", "1", "--metrics", self.metrics, f"{HERE}/e4/{name}"]
        values = {"PORT": self.port, **defines}
        if busy:
            command += ["--set", f"worker.busy-poll={BUSY}"]
        if clock:
            values["CLOCK"] = f", 'arrival.column' = '{column}'"
        for key, value in values.items():
            command += ["-D", f"{key}={value}"]
        self.process = start(command, stdout=self.out, stderr=self.errors)
        try:
            self.listens(name)
        except BaseException:
            self.close()
            raise

    def listens(self, name):
        """Waits until it does."""
        deadline = time.monotonic() + PATIENCE
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"{name}: {self.said()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} does not listen after {PATIENCE} s: {self.said()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.01)

    def said(self):
        self.errors.seek(0)
        return self.errors.read().strip()[-500:]

    def marks(self):
        """The marks of the ctl channel so far: (mark, events sent, the client's clock in seconds)."""
        self.out.flush()
        with open(self.out.name) as lines:
            rows = [line[len(MARK):].strip().rstrip("]").split(", ") for line in lines if line.startswith(MARK) and line.endswith("]\n")]
        at = [datetime.datetime.fromisoformat(row[2].replace("Z", "+00:00")).timestamp() for row in rows]
        return [(int(row[0]), int(row[1]), seconds) for row, seconds in zip(rows, at)]

    def end(self):
        self.process.send_signal(signal.SIGINT)
        if self.process.wait(PATIENCE) != 0:
            raise RuntimeError(self.said())
        with open(self.metrics) as f:
            return json.load(f)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        end(self.process)
        self.out.close()
        self.errors.close()
        self.dir.cleanup()


def siddhi(app, segments, burn, warm, measure):
    """Siddhi's server and client; a row of figures for each segment."""
    port = free_port()
    with running(peer("TcpServer", {"app": app, "port": port}), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        ready, _, _ = select.select([server.stdout], [], [], PATIENCE)
        if not ready or server.stdout.readline().strip() != "ready":
            raise RuntimeError("Siddhi's server did not start")
        load = {"app": app, "port": port, "pid": server.pid, "segments": segments, "burn": burn, "warm": warm, "measure": measure}
        with running(peer("TcpClient", load), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            out, _ = server.communicate(timeout=RUN_MAX)
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def their_client(query, frame, t):
    """Events a second of our job with Siddhi's client: what it sent between its marks over its own clock."""
    with Job(query) as job:
        load = {"app": query[3], "port": job.port, "segments": frame, "burn": t.burn, "warm": t.warm, "measure": t.measure}
        with running(peer("TcpClient", load), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
            deadline = time.monotonic() + RUN_MAX
            while not any(mark == 3 for mark, _, _ in job.marks()):
                if time.monotonic() > deadline or job.process.poll() is not None or client.poll() not in (None, 0):
                    raise RuntimeError(f"no last mark: {job.said()}")
                time.sleep(0.1)
        by = {mark: (sent, at) for mark, sent, at in job.marks()}
        job.end()
        return (by[2][0] - by[1][0]) / (by[2][1] - by[1][1])


def pool(kind, frame):
    """Frames with POOL events, distributed as those of Siddhi's client, each with the time -1."""
    r = random.Random(42)
    balls = (4, 8, 10, 12)
    events, tick = [], 10629342490369879
    for i in range(POOL):
        if kind == "simple":
            event = struct.pack(">qqf", -1, i, r.random())
        elif kind == "trades":
            symbol = r.randrange(100)
            name = b"SYM%d" % symbol
            event = struct.pack(f">qqi{len(name)}sfq", -1, i, len(name), name, 10 + symbol + r.random(), 1 + r.randrange(1000))
        else:
            lot = r.random()
            beside, inside = GOALS[kind]
            first, second = lot < beside, beside <= lot < beside + inside
            ball = first or second or r.random() < 0.5
            tick += 66_000_000
            x = 29900 + r.randrange(3000) if first else 22600 + r.randrange(7200)
            y = -33968 - r.randrange(500) if second else -33000 + r.randrange(66000)
            a = 55000 + r.randrange(100000) if second else r.randrange(100000)
            sid = balls[r.randrange(4)] if ball else 13 + r.randrange(90)
            rest = [r.randrange(10000) for _ in range(6)]
            event = struct.pack(">qqiqddidi6i", -1, i, sid, tick, x, y, r.randrange(2400), r.random() * 1e7, a, *rest)
        events.append(event)
    session, channel = b"6c71aed2-c700-493e-9eb1-e7e6389b2650-127.0.0.1:09892", b"inputStream"
    out = bytearray()
    for at in range(0, POOL, frame):
        payload = struct.pack(">i", frame) + b"".join(events[at:at + frame])
        out += struct.pack(f">bii{len(session)}si{len(channel)}si", 2, 12 + len(session) + len(channel) + len(payload),
                           len(session), session, len(channel), channel, len(payload)) + payload
    return memoryview(bytes(out))


def our_client(query, frame, t):
    """Events a second of our job with our publisher, and whether all of them came."""
    kind = query[2]
    frames = None if kind == "simple" else pool(kind, frame)
    with Job(query) as job:
        if frames is None:
            metrics = f"{job.dir.name}/sent.json"
            command = [TIDEMILL, "run", "-q", "--parallelism", "1", "--metrics", metrics, f"{HERE}/e4/send.sql"]
            rate, total, rows = 0, 0, 2_000_000
            for _ in range(2):  # the first run finds how many events the second shall have
                rows = max(rows, int(rate * t.measure))
                finish(command + ["-D", f"PORT={job.port}", "-D", f"FRAME={frame}", "-D", f"ROWS={rows}"])
                with open(metrics) as f:
                    sent = json.load(f)
                rate, total = sent["rows_out"] / sent["elapsed_s"], total + sent["rows_out"]
        else:
            with socket.create_connection(("127.0.0.1", job.port), PATIENCE) as s:
                begin, rounds, at = time.perf_counter(), 0, None
                while True:
                    s.sendall(frames)
                    rounds += 1
                    now = time.perf_counter() - begin
                    if at is None and now >= t.warm:
                        at = (rounds, now)
                    elif at and now >= t.warm + t.measure:
                        rate, total = (rounds - at[0]) * POOL / (now - at[1]), rounds * POOL
                        break
        time.sleep(2)  # what lies in the sockets is worked off
        read = next(n["rows"] for n in job.end()["nodes"] if n["name"] == "Source inputStream")
        if read != total:
            raise RuntimeError(f"{total} events were sent, {read} arrived")
        return rate


def our_latency(query, frame, rate, burn, seconds, busy=False):
    """p50 and p99 in microseconds from Siddhi's client, which has sent for `burn` seconds before, to our sink."""
    with Job(query, clock=True, busy=busy) as job:
        load = java(LOAD, "tidemill.siddhi.Load") + [str(job.port), query[2], str(frame), str(rate), str(burn), str(seconds)]
        sent = finish(load, stderr=subprocess.DEVNULL).strip()
        time.sleep(1)
        summary = job.end()
        read = next(n["rows"] for n in summary["nodes"] if n["name"] == "Source inputStream")
        if read != int(sent):
            raise RuntimeError(f"{sent} events were sent, {read} arrived")
        return summary["latency_ms"]["p50"] * 1000, summary["latency_ms"]["p99"] * 1000


def shown(values, digits=0):
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:,.{digits}f}"
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def ratio(ours, theirs):
    return f"{statistics.median(ours) / statistics.median(theirs):.1f}" if ours and theirs else "–"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", help="queries, separated by commas; all by default")
    p.add_argument("--frames", default="1,16,256", help="events a frame; none for latencies alone")
    p.add_argument("--no-minute", action="store_true", help="leave the window of a minute out")
    p.add_argument("--quick", action="store_true", help="short runs, to see that everything works")
    p.add_argument("--out", default=os.path.join(HERE, "runs", datetime.date.today().isoformat(), "e4"))
    a = p.parse_args()
    t = argparse.Namespace(burn=2, warm=0.5, measure=1) if a.quick else argparse.Namespace(burn=8, warm=1, measure=5)
    frames = [int(n) for n in a.frames.split(",") if n]
    names = list(QUERIES) if a.only is None else [n.strip() for n in a.only.split(",")]
    unknown = [n for n in names if n not in QUERIES]
    if unknown:
        sys.exit(f"no query {unknown[0]!r}; there are: {', '.join(QUERIES)}")
    if not os.path.isdir(f"{PEER}/target/classes"):
        sys.exit("SIDDHI_PEER must name the built peer: a directory with target/classes and target/lib")
    if not os.path.isdir(f"{LOAD}/classes"):
        sys.exit("build the client for latencies first: mvn -q -f tests/siddhi/pom.xml package")
    # Whoever stops this stops what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("e4.py: stopped"))
    found = {}

    def note(key, value):
        found.setdefault(key, []).append(value)
        print(*key, value, file=sys.stderr, flush=True)

    def attempt(what, run):
        try:
            run()
        except Exception as e:  # one cell that fails shall not lose the others
            print(f"FAILED {what}: {e}", file=sys.stderr, flush=True)
            failures.append(f"{what}: {e}")

    failures = []
    try:
        for _ in range(a.rounds):
            for name in names:
                query = QUERIES[name]

                def theirs():
                    segments = ",".join([str(n) for n in frames] + ([] if name in NO_LATENCY else ["16@100000"]))
                    for row in siddhi(query[3], segments, t.burn, t.warm, t.measure):
                        if row["rate"]:
                            note((name, "latency", "siddhi"), (row["p50_us"], row["p99_us"]))
                        else:
                            note((name, row["batch"], "siddhi"), row["eps"])

                attempt(f"{name}, Siddhi", theirs)
                for frame in frames:
                    attempt(f"{name}, frames of {frame}, their client", lambda: note((name, frame, "theirs"), their_client(query, frame, t)))
                    attempt(f"{name}, frames of {frame}, our client", lambda: note((name, frame, "ours"), our_client(query, frame, t)))
                if name not in NO_LATENCY:
                    # As long as Siddhi's own client has sent by then: its code becomes quicker all the while.
                    burn = t.burn + len(frames) * (t.warm + t.measure)
                    for who, busy in (("ours", False), ("busy", True)):
                        run = lambda: note((name, "latency", who), our_latency(query, 16, 100_000, burn, 2 * t.measure, busy))
                        attempt(f"{name}, latency, {who}", run)
            if not a.no_minute:
                fill = 2 if a.quick else 64

                def minute():
                    for row in siddhi(MINUTE[3], "16@100000", 0, fill, t.measure):
                        for name in MINUTES:
                            note((name, "latency", "siddhi"), (row["p50_us"], row["p99_us"]))

                attempt("time 1 min, Siddhi", minute)
                for name, query in MINUTES.items():
                    for who, busy in (("ours", False), ("busy", True)):
                        run = lambda: note((name, "latency", who), our_latency(query, 16, 100_000, t.burn, fill + t.measure, busy))
                        attempt(f"{name}, {who}", run)
    except (KeyboardInterrupt, SystemExit) as e:  # what was measured until then is kept
        failures.append(str(e) or "e4.py: stopped")

    get = lambda *key: found.get(key, [])
    lines = [f"Medians of {a.rounds} rounds{' at the most' if failures else ''}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end.", "", "Events a second:", "",
             "| query | frame | Siddhi | our job, their client | ratio | our job, our client | ratio |", "|---|---|---|---|---|---|---|"]
    for name in names:
        for frame in frames:
            base, theirs, ours = get(name, frame, "siddhi"), get(name, frame, "theirs"), get(name, frame, "ours")
            lines.append(f"| {name} | {frame} | {shown(base)} | {shown(theirs)} | {ratio(theirs, base)} | {shown(ours)} | {ratio(ours, base)} |")
    lines += ["", "Latency in microseconds at 100,000 events a second (frames of 16):", "",
              "| query | Siddhi p50 | ours p50 | busy p50 | Siddhi p99 | ours p99 | busy p99 |", "|---|---|---|---|---|---|---|"]
    for name in [n for n in names if n not in NO_LATENCY] + ([] if a.no_minute else list(MINUTES)):
        all_three = [get(name, "latency", who) for who in ("siddhi", "ours", "busy")]
        cells = [shown([row[k] for row in rows], 0) for k in (0, 1) for rows in all_three]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [""] + [f"FAILED {failure}" for failure in failures]
    table = "\n".join(lines).rstrip() + "\n"
    os.makedirs(a.out, exist_ok=True)
    with open(os.path.join(a.out, "results.md"), "w") as f:
        f.write(table)
    with open(os.path.join(a.out, "results.json"), "w") as f:
        json.dump([{"cell": key, "values": values} for key, values in found.items()], f, indent=1)
    print(table)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
