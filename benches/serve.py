#!/usr/bin/env python3
"""Publish and subscribe, measured on loopback: throughput of Flight, many subscribers of one stream, latency
under load. Needs Python's standard library only. Writes to standard output and to benches/runs/DATE/serve.txt.

    benches/serve.py [publish] [subscribe] [fanout] [latency]      all of them without arguments

    RUNS          runs of each figure, medians are shown (default 3)
    SECONDS       of each run (default 5)
    BLOCK_BYTES   of a message in publish and subscribe (default 65536)
    SUBSCRIBERS   in fanout (default 0,1,100,1000)
    RATE          rows a second in fanout (default 2048, in blocks of 256)
"""

import contextlib
import json
import os
import re
import resource
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release")
TIDEMILL = os.path.join(TARGET, "tidemill")
RUNS = int(os.environ.get("RUNS", "3"))
SECONDS = float(os.environ.get("SECONDS", "5"))
BLOCK_BYTES = int(os.environ.get("BLOCK_BYTES", "65536"))
SUBSCRIBERS = [int(n) for n in os.environ.get("SUBSCRIBERS", "0,1,100,1000").split(",")]
RATE = int(os.environ.get("RATE", "2048"))

# Seconds that a process may take beyond those that it is asked to run for.
PATIENCE = 60
COLUMNS = "a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT, f BIGINT, g BIGINT, h BIGINT"
ROW_BYTES = 64
LOG = []


def say(text=""):
    print(text, flush=True)
    LOG.append(text)


def build():
    """The binary and the load programs, built if they are not there."""
    if not os.path.exists(TIDEMILL):
        subprocess.run(["cargo", "build", "--release", "-p", "tidemill"], cwd=ROOT, check=True, timeout=3600)
    if not all(os.path.exists(os.path.join(TARGET, "examples", name)) for name in ("publisher", "subscribers")):
        command = ["cargo", "build", "--release", "-p", "tidemill-remote", "--examples"]
        subprocess.run(command, cwd=ROOT, check=True, timeout=3600)


def example(name, *arguments):
    return [os.path.join(TARGET, "examples", name), *map(str, arguments)]


def cpu(pid):
    """CPU seconds of a process so far."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cost(run):
    """What a call gives, and the CPU seconds of the processes that it waited for."""
    before = children_cpu()
    result = run()
    return result, children_cpu() - before


def start(command, **options):
    """A process with a session of its own, so that it ends together with what it starts."""
    return subprocess.Popen(command, start_new_session=True, **options)


def end(process):
    """Ends a process of `start` at once, if it has not ended."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=PATIENCE)


@contextlib.contextmanager
def running(command, **options):
    """A process that does not outlive the block."""
    process = start(command, **options)
    try:
        yield process
    finally:
        end(process)


def finish(command):
    """What a command prints that runs for SECONDS, or about as long."""
    with running(command, stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate(timeout=4 * SECONDS + PATIENCE)
        if process.returncode != 0:
            sys.exit(f"serve.py: {os.path.basename(command[0])} ended with {process.returncode}")
        return out


def run_json(command):
    """The last line that a command prints, as JSON."""
    return json.loads(finish(command).strip().splitlines()[-1])


def first_line(process):
    """The first line that a process prints; nothing if it does not say anything in time."""
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
    return process.stdout.readline() if ready else ""


def adapter_command(source, server, stream, *arguments):
    # Should the server be gone, it is not waited for.
    to = f"flight://{server.address}/{stream}"
    return [TIDEMILL, "adapter", "--from", source, "--to", to, "--reconnect", "5", "--quiet", *arguments]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server with one job, called `job`."""

    def __init__(self, work, sql, *arguments):
        path = os.path.join(work, "job.sql")
        with open(path, "w") as file:
            file.write(sql)
        self.metrics = os.path.join(work, "serve.json")
        command = [TIDEMILL, "serve", path, "--listen", "127.0.0.1:0", "--metrics", self.metrics, *arguments]
        self.log = open(os.path.join(work, "serve.log"), "w+")
        self.process = start(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        try:
            self.wait()
        except BaseException:
            self.close()
            raise

    def wait(self):
        """Until the job runs."""
        line = first_line(self.process)
        found = re.search(r"://([^,\s]+)", line)
        if not found:
            self.fail(f"the server said no address: {line!r}")
        self.address = found[1].rstrip("/")
        deadline = time.monotonic() + 30
        while self.get("/v1/jobs/job")["state"] != "running":
            if time.monotonic() > deadline:
                self.fail("the job does not run")
            time.sleep(0.02)
        time.sleep(0.3)

    def fail(self, why):
        end(self.process)
        self.log.seek(0)
        sys.exit(f"serve.py: {why}\n{self.log.read()}")

    def close(self):
        end(self.process)
        self.process.stdout.close()
        self.log.close()

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            return json.load(answer)

    def cpu(self):
        return cpu(self.process.pid)

    def rows(self, kind):
        """Rows of the job's nodes whose names begin so."""
        return sum(node["rows"] for node in self.get("/v1/jobs/job")["nodes"] if node["name"].startswith(kind))

    def stop(self):
        """Stops it in good order; the job's summary."""
        self.process.send_signal(signal.SIGINT)
        if self.process.wait(timeout=PATIENCE) != 0:
            self.fail("the server did not end well")
        with open(self.metrics) as file:
            return json.load(file)["jobs"][0]


@contextlib.contextmanager
def served(sql, *arguments):
    with tempfile.TemporaryDirectory() as work:
        server = Server(work, sql, *arguments)
        try:
            yield server
        finally:
            server.close()


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def spread(runs, key, scale=1.0):
    values = [run[key] * scale for run in runs]
    return f"{min(values):.2f}-{max(values):.2f}"


def throughput(name, runs):
    gb = median(runs, "gb_s")
    say(f"  {name:<44}{gb:>7.2f} GB/s  ({spread(runs, 'gb_s')})  CPU s a GB: server {median(runs, 'server'):.2f}, client {median(runs, 'client'):.2f}")
    return gb


def bar(holds, text):
    say(f"  {'holds' if holds else 'FAILS'}: {text}")


# ---- throughput ------------------------------------------------------------------------------------


def measured(server, run):
    """Bytes and seconds that `run` gives, with the CPU of both sides for each GB."""
    before = server.cpu()
    (nbytes, seconds), client = cost(run)
    used = server.cpu() - before
    gb = nbytes / 1e9
    return {"gb_s": gb / seconds, "server": used / gb, "client": client / gb}


def publish():
    say(f"publish: messages of {BLOCK_BYTES} bytes into a job that counts rows")
    sql = f"""
        CREATE TABLE numbers ({COLUMNS}) WITH ('connector' = 'stream');
        CREATE TABLE nowhere ({COLUMNS}) WITH ('connector' = 'blackhole');
        INSERT INTO nowhere SELECT * FROM numbers;"""
    rows = max(BLOCK_BYTES // ROW_BYTES, 1)

    def load(server):
        def run():
            result = run_json(example("publisher", server.address, "numbers", BLOCK_BYTES, SECONDS))
            return result["bytes"], result["elapsed_s"]

        return run

    def adapter(server):
        fields = ",".join(f"fields.{c}.kind=sequence" for c in "abcdefgh")
        count = int(SECONDS * 4_000_000)
        source = f"connector=datagen,rows-per-second=0,number-of-rows={count},{fields}"

        def run():
            with tempfile.TemporaryDirectory() as work:
                metrics = os.path.join(work, "adapter.json")
                finish(adapter_command(source, server, "numbers", "--block-size", str(rows), "--metrics", metrics))
                with open(metrics) as file:
                    result = json.load(file)
            return result["bytes_out"], result["elapsed_s"]

        return run

    runs = {"one block again and again": [], "an adapter that makes the rows up (datagen)": []}
    for _ in range(RUNS):
        for name, make in zip(runs, (load, adapter)):
            with served(sql, "--parallelism", "1") as server:
                runs[name].append(measured(server, make(server)))
                server.stop()
    best = [throughput(name, figures) for name, figures in runs.items()][0]
    bar(best >= 1.0, f"publish {best:.2f} GB/s, 1 GB/s wanted")
    say()


def subscribe():
    rows = max(BLOCK_BYTES // ROW_BYTES, 1)
    say(f"subscribe: deliveries of {rows} rows ({rows * ROW_BYTES} bytes), the job waits for its subscriber")
    sql = f"""
        SET 'block.size' = '{rows}';
        CREATE TABLE made (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'fields.n.kind' = 'sequence');
        CREATE TABLE numbers ({COLUMNS}) WITH ('connector' = 'stream');
        INSERT INTO numbers SELECT n, n, n, n, n, n, n, n FROM made;"""
    taking = f"""
        CREATE TABLE numbers ({COLUMNS}) WITH ('connector' = 'flight', 'url' = 'flight://ADDRESS/numbers', 'slow' = 'wait');
        CREATE TABLE nowhere ({COLUMNS}) WITH ('connector' = 'blackhole');
        INSERT INTO nowhere SELECT * FROM numbers;"""

    def count(server):
        def run():
            result = run_json(example("subscribers", server.address, "numbers", 1, SECONDS, "wait"))
            return result["bytes"], result["elapsed_s"]

        return run

    def job(server):
        def run():
            summary = run_job(taking.replace("ADDRESS", server.address), SECONDS)
            return summary["rows_in"] * ROW_BYTES, summary["elapsed_s"]

        return run

    runs = {"a client that counts bytes": [], "a job (flight into blackhole), which decodes": []}
    for _ in range(RUNS):
        for name, make in zip(runs, (count, job)):
            with served(sql, "--parallelism", "1") as server:
                runs[name].append(measured(server, make(server)))
    best = [throughput(name, figures) for name, figures in runs.items()][0]
    bar(best >= 1.0, f"subscribe {best:.2f} GB/s, 1 GB/s wanted")
    say()


class Job:
    """`tidemill run` of a job that is stopped when enough was seen."""

    def __init__(self, sql, *arguments):
        self.work = tempfile.TemporaryDirectory()
        path = os.path.join(self.work.name, "job.sql")
        with open(path, "w") as file:
            file.write(sql)
        self.metrics = os.path.join(self.work.name, "metrics.json")
        command = [TIDEMILL, "run", path, "--quiet", "--parallelism", "1", "--metrics", self.metrics, *arguments]
        self.log = open(os.path.join(self.work.name, "log"), "w+")
        self.process = start(command, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.log.close()
        self.work.cleanup()

    def stop(self):
        """Stops it in good order; its summary."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=2 * PATIENCE)
        if code != 0:
            self.log.seek(0)
            sys.exit(f"serve.py: a job ended with {code}\n{self.log.read()}")
        with open(self.metrics) as file:
            return json.load(file)


def run_job(sql, seconds):
    with Job(sql) as job:
        time.sleep(seconds)
        return job.stop()


# ---- many subscribers ------------------------------------------------------------------------------


def fanout():
    say(f"fan-out: {RATE} rows a second of {ROW_BYTES} bytes in blocks of 256, to many subscribers")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sql = f"""
        SET 'block.size' = '256';
        SET 'block.linger' = '1 s';
        CREATE TABLE made (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{RATE}', 'fields.n.kind' = 'sequence');
        CREATE TABLE numbers ({COLUMNS}) WITH ('connector' = 'stream');
        INSERT INTO numbers SELECT n, n, n, n, n, n, n, n FROM made;"""
    say(f"  {'subscribers':>11}{'rows/s':>10}{'MB/s':>9}{'messages/s':>12}{'server CPU':>12}{'CPU s a GB':>12}{'ended':>7}")
    runs = {count: [] for count in SUBSCRIBERS}
    for _ in range(RUNS):
        for count, figures in runs.items():
            with served(sql, "--parallelism", "1") as server:
                figures.append(watch(server, count))
                server.stop()
    rates = {}
    for count, figures in runs.items():
        row = {key: median(figures, key) for key in figures[0]}
        rates[count] = row["rows_s"]
        per_gb = f"{row['per_gb']:.2f}" if row["per_gb"] else "-"
        say(f"  {count:>11}{row['rows_s']:>10.0f}{row['mb_s']:>9.1f}{row['messages_s']:>12.0f}{row['cpu'] * 100:>11.1f}%{per_gb:>12}{row['ended']:>7.0f}")
    if 0 in rates:
        for count, rate in rates.items():
            bar(rate >= 0.99 * rates[0], f"with {count} subscribers the job makes {rate / rates[0]:.3f} of its rows without any")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    say()


def watch(server, count):
    """The job's rate and the server's CPU while so many subscribers listen."""
    if count == 0:
        return looked_at(server)
    # It counts for a second longer than we look, at either end.
    command = example("subscribers", server.address, "numbers", count, SECONDS + 1)
    with running(command, stdout=subprocess.PIPE, text=True) as client:
        if first_line(client).strip() != "ready":
            server.fail(f"{count} subscribers could not subscribe")
        figures = looked_at(server)
        client.wait(timeout=SECONDS + PATIENCE)
        result = json.loads(client.stdout.read().strip().splitlines()[-1])
        client.stdout.close()
    mb_s = result["bytes"] / result["elapsed_s"] / 1e6
    figures.update(mb_s=mb_s, messages_s=result["messages"] / result["elapsed_s"], ended=result["ended"])
    figures["per_gb"] = figures["cpu"] / (mb_s / 1e3) if mb_s else 0.0
    return figures


def looked_at(server):
    """What the server does for SECONDS."""
    time.sleep(0.5)
    began, rows, used = time.monotonic(), server.rows("Source"), server.cpu()
    time.sleep(SECONDS)
    elapsed, rows, used = time.monotonic() - began, server.rows("Source") - rows, server.cpu() - used
    return {"rows_s": rows / elapsed, "cpu": used / elapsed, "mb_s": 0.0, "messages_s": 0.0, "per_gb": 0.0, "ended": 0}


# ---- latency ---------------------------------------------------------------------------------------

EVENT = "ts TIMESTAMP(3), k BIGINT, v DOUBLE"
QUERIES = {
    "pass-through": ("k BIGINT, v DOUBLE", "SELECT k, v FROM events", 2.0),
    "filter 0.5": ("k BIGINT, v DOUBLE", "SELECT k, v FROM events WHERE v < 0.5", 2.0),
    "window 1 s": (
        "k BIGINT, total DOUBLE, c BIGINT",
        "SELECT k, SUM(v) OVER w, COUNT(*) OVER w FROM events WINDOW w AS (ORDER BY ts RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW)",
        5.0,
    ),
}


def receiving(query, source):
    columns, select, _ = QUERIES[query]
    watermark = ", WATERMARK FOR ts AS ts" if "ts" in select else ""
    return f"""
        CREATE TABLE events ({EVENT}{watermark}) WITH ({source});
        CREATE TABLE nowhere ({columns}) WITH ('connector' = 'blackhole');
        INSERT INTO nowhere {select};"""


def made(rate):
    """Options of datagen for events of now."""
    return {"connector": "datagen", "rows-per-second": str(rate), "fields.k.min": "0", "fields.k.max": "999", "fields.v.min": "0", "fields.v.max": "1"}


def over_siddhi(query, rate, frame=16):
    """The receiving job's summary when events come in Siddhi's frames."""
    port = free_port()
    options = ", ".join(f"'{key}' = '{value}'" for key, value in made(rate).items())
    sending = f"""
        SET 'block.size' = '{frame}';
        CREATE TABLE made ({EVENT}) WITH ({options});
        CREATE TABLE sent ({EVENT}) WITH ('connector' = 'siddhi-tcp', 'port' = '{port}', 'channel' = 'events', 'frame.events' = '{frame}');
        INSERT INTO sent SELECT ts, k, v FROM made;"""
    with Job(receiving(query, f"'connector' = 'siddhi-tcp', 'port' = '{port}', 'channel' = 'events'")) as receiver:
        wait_for_port(port)
        with Job(sending) as sender:
            time.sleep(SECONDS)
            sender.stop()
        return receiver.stop()


def over_flight(query, rate):
    """The served job's summary when an adapter publishes."""
    with served(receiving(query, "'connector' = 'stream'"), "--parallelism", "1") as server:
        source = ",".join(f"{key}={value}" for key, value in made(rate).items())
        with running(adapter_command(source, server, "events"), stderr=server.log) as adapter:
            time.sleep(SECONDS)
            adapter.send_signal(signal.SIGINT)
            if adapter.wait(timeout=PATIENCE) != 0:
                server.fail("the adapter did not end well")
        summary = server.stop()
    # The server ran before and after the adapter did.
    summary["rows_per_s"] = summary["rows_in"] / SECONDS
    return summary


def wait_for_port(port):
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if time.monotonic() > deadline:
            sys.exit(f"serve.py: nobody listens on port {port}")
        time.sleep(0.02)


def latency():
    say("latency from the socket to the sink at half of saturation; the publisher runs beside on the same machine")
    say(f"  {'over':<12}{'query':<14}{'saturation':>12}{'rows/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>10}{'range of p99':>16}")
    for way, run in (("siddhi-tcp", over_siddhi), ("flight", over_flight)):
        for query, (_, _, wanted) in QUERIES.items():
            most = statistics.median(run(query, 0)["rows_per_s"] for _ in range(RUNS))
            runs = [run(query, int(most / 2)) for _ in range(RUNS)]
            figures = [{**run["latency_ms"], "rows_s": run["rows_per_s"]} for run in runs]
            m = {key: median(figures, key) for key in ("p50", "p99", "p999", "rows_s")}
            say(f"  {way:<12}{query:<14}{most:>12.0f}{m['rows_s']:>12.0f}{m['p50']:>9.3f}{m['p99']:>9.3f}{m['p999']:>10.3f}{spread(figures, 'p99'):>16}")
            bar(m["p99"] < wanted, f"p99 {m['p99']:.2f} ms over {way}, {query}; under {wanted} ms wanted")
    say()


def main():
    parts = {"publish": publish, "subscribe": subscribe, "fanout": fanout, "latency": latency}
    wanted = sys.argv[1:] or list(parts)
    if unknown := [name for name in wanted if name not in parts]:
        sys.exit(f"serve.py: there is no part {unknown[0]!r}\n{__doc__}")
    # Whoever stops this stops what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("serve.py: stopped"))
    build()
    machine = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown processor")
    say(f"{os.uname().sysname} {os.uname().release} {os.uname().machine}, {os.cpu_count()} x {machine}")
    say(f"medians of {RUNS} runs of {SECONDS:g} s")
    say()
    for name in wanted:
        try:
            parts[name]()
        except subprocess.TimeoutExpired as late:
            sys.exit(f"serve.py: {name}: {' '.join(map(str, late.cmd))} did not end within {late.timeout:g} s, and was killed")
    out = os.path.join(ROOT, "benches", "runs", time.strftime("%Y-%m-%d"))
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "serve.txt"), "w") as file:
        file.write("\n".join(LOG) + "\n")


if __name__ == "__main__":
    main()
