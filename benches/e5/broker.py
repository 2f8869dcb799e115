"""The peers: a Kafka broker and a Samza job, by the scripts in the directories that KAFKA_PEER and SAMZA_PEER name."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

from common import cpu, peak_mb, run, say

KAFKA = os.environ.get("KAFKA_PEER", "")
SAMZA = os.environ.get("SAMZA_PEER", "")
PEERS = os.environ.get("PEERS_DIR", os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "tidemill-peers"))
PORT = int(os.environ.get("KAFKA_PORT", "19092"))
SERVERS = f"127.0.0.1:{PORT}"


class Broker:
    """A broker that is there when the constructor is done. Its data is wiped at the start, unless it is one that runs."""

    def __init__(self, running=False):
        if not KAFKA:
            sys.exit("e5.py: set KAFKA_PEER to the directory with kafka.sh")
        self.running = running
        if listens(PORT) != running:
            sys.exit(f"e5.py: {'no broker runs' if running else 'something listens already'} on port {PORT}; see --running")
        if not running:
            say(self.kafka("start").strip())
        with open(os.path.join(os.environ.get("KAFKA_HOME_DIR", f"{PEERS}/kafka"), "run", "broker.pid")) as file:
            self.pid = int(file.read())

    def kafka(self, *arguments):
        """A command of kafka.sh; what it says."""
        done = subprocess.run([os.path.join(KAFKA, "kafka.sh"), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"kafka.sh {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stdout.strip()}")
        return done.stdout

    def topic(self, name, partitions):
        """Makes a topic and waits until it has its partitions' leaders."""
        self.kafka("topic", name, partitions)
        time.sleep(1)

    def delete(self, name):
        """Drops a topic; its files go a minute later."""
        try:
            self.kafka("delete", name)
        except RuntimeError as e:
            say(f"e5.py: {e}")

    def fill(self, sql, name, partitions, rows, values):
        """Makes a topic and fills it with as many messages by a job of ours."""
        if self.running:
            self.delete(name)
        self.topic(name, partitions)
        done = run(sql, {"ROWS": rows, **values}, "--parallelism", "1")
        say(f"filled {name} with {done['rows_out']:,} messages in {done['elapsed_s']:.0f} s")
        if done["rows_out"] != rows:
            sys.exit(f"e5.py: {done['rows_out']} messages came into {name} instead of {rows}")

    def cpu(self):
        """CPU seconds of the broker so far."""
        return cpu(self.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.running:
            subprocess.run([os.path.join(KAFKA, "kafka.sh"), "stop"], stdin=subprocess.DEVNULL)


def sink(topic, format_, more=""):
    """Options of a table that writes a topic."""
    return f"'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{SERVERS}', 'format' = '{format_}'{more}"


def listens(port):
    """Whether somebody listens."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def samza(kind, threads, in_flight, rows, topic, limit_s=3600):
    """A run of a Samza job over the first `rows` messages: rate, CPU µs a message, peak MB of its process."""
    if PORT != 19092:
        sys.exit("e5.py: the Samza job knows the broker's port 19092 only; leave KAFKA_PORT out")
    command = [os.path.join(SAMZA, "samza.sh"), "run", kind, threads, in_flight, rows, topic, "systems.kafka.consumer.max.poll.records=500"]
    environment = {**os.environ, "LIMIT": str(limit_s)}
    process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment)
    peak = 0.0
    try:
        while process.poll() is None:
            peak = max([peak, *map(peak_mb, java_below(process.pid))])
            time.sleep(0.3)
    except BaseException:
        # The script's own `timeout` keeps signals of the terminal from it.
        for pid in java_below(process.pid):
            os.kill(pid, signal.SIGKILL)
        raise
    text = process.stdout.read()
    found = re.search(r"msgs_per_s=([\d.]+) cpu_s=([\d.]+)", text)
    if not found:
        raise RuntimeError(text.strip()[-800:])
    return {"rate": float(found[1]), "cpu": float(found[2]) / rows * 1e6, "peak": peak}


def java_below(pid):
    """Java processes among the descendants of a process."""
    parents, names = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                name, fields = file.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:  # it has just ended
            continue
        parents[int(entry)], names[int(entry)] = int(fields.split()[1]), name

    def below(child):
        while child in parents:
            if child == pid:
                return True
            child = parents[child]
        return False

    return [child for child, name in names.items() if name == "java" and below(child)]
