"""What the parts of E5 share: a run of a job that is watched, slices of a run, tables, the file of results."""

import datetime
import json
import os
import pty
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BENCHES = os.path.dirname(HERE)
ROOT = os.path.dirname(BENCHES)
RELEASE = os.path.join(os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target"), "release")
TIDEMILL = os.environ.get("TIDEMILL", f"{RELEASE}/tidemill")

# The live line: seconds, rows in, rows out, rate, latency if there is one, memory.
LIVE = re.compile(r"([\d.]+) s  in ([\d.]+)( [kMG])?  out \S+(?: [kMG])?  \S+(?: [kMG])?/s(?:  p99 ([\d.]+) ms)?.*memory ([\d.]+) (KB|MB|B)")
SCALE = {None: 1, " k": 1e3, " M": 1e6, " G": 1e9, "B": 1 / 1_048_576, "KB": 1 / 1024, "MB": 1}


class Job:
    """A run of a job whose live line is read as on a terminal, five times a second: `samples` are (s, rows in, MB, p99 in ms
    of the last second or None)."""

    def __init__(self, sql, values, *arguments, out=subprocess.DEVNULL, pin=None):
        self.work = tempfile.TemporaryDirectory()
        self.metrics = os.path.join(self.work.name, "metrics.json")
        command = [TIDEMILL, "run", os.path.join(HERE, sql), "--metrics", self.metrics, *arguments]
        for key, value in values.items():
            command += ["-D", f"{key}={value}"]
        self.samples, self.told = [(0.0, 0.0, 0.0, None)], []
        terminal, theirs = pty.openpty()
        # In one processor alone: the job and all its threads, not what it talks to.
        before = (lambda: os.sched_setaffinity(0, {pin})) if pin is not None else None
        self.begun = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=theirs, env={**os.environ, "NO_COLOR": "1"}, preexec_fn=before)
        os.close(theirs)
        self.reader = threading.Thread(target=self._read, args=(terminal,), daemon=True)
        self.reader.start()

    def _read(self, terminal):
        rest = ""
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # nobody holds the other end any more
                piece = b""
            if not piece:
                break
            *lines, rest = re.split(r"[\r\n]+", rest + piece.decode(errors="replace"))
            # The live line begins with a carriage return, so the newest stands in what is left.
            for line in [*lines, rest]:
                if found := LIVE.search(line):
                    at, rows, scale, p99, memory, unit = found.groups()
                    sample = (float(at), float(rows) * SCALE[scale], float(memory) * SCALE[unit], float(p99) if p99 else None)
                    if sample[0] > self.samples[-1][0]:
                        self.samples.append(sample)
                    else:
                        self.samples[-1] = sample
                elif line in lines and line.strip():
                    self.told.append(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line))
            if LIVE.search(rest):
                rest = ""
        os.close(terminal)

    def rows(self):
        """Rows read so far, to three digits or better."""
        return self.samples[-1][1]

    def stop(self):
        """Asks it to take a last checkpoint and end."""
        self.process.send_signal(signal.SIGINT)

    def wait(self, killed=False):
        """What it did: the summary of --metrics, CPU seconds and peak MB of the process, seconds with its start and its end."""
        _, status, usage = os.wait4(self.process.pid, 0)
        elapsed = time.monotonic() - self.begun
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.reader.join(timeout=10)
        try:
            if killed:
                return None
            if self.process.returncode != 0:
                raise RuntimeError("\n".join(self.told)[-800:] or f"the job ended with {self.process.returncode}")
            with open(self.metrics) as file:
                summary = json.load(file)
        finally:
            self.work.cleanup()
        summary.update(wall_s=elapsed, cpu_s=usage.ru_utime + usage.ru_stime, peak_mb=summary["peak_memory_bytes"] / 2**20, samples=self.samples)
        return summary

    def kill(self):
        """Ends it at once, if it is still there."""
        if self.process.returncode is None:
            self.process.kill()
            self.wait(killed=True)


def run(sql, values, *arguments, **how):
    """A job from its beginning to its end."""
    job = Job(sql, values, *arguments, **how)
    try:
        return job.wait()
    except BaseException:
        job.kill()
        raise


def slices(samples, rows, count):
    """Rows a second of each of `count` equal parts of `rows`, by the live line. Its last sample comes when the job has ended: what
    a job does after it has read its last row, such as to write what waits or to remove its files, is in no part."""
    samples = samples[:-1] if len(samples) > 2 else samples

    def at(wanted):
        """When so many rows had come, and how many; the most that were seen where that was not all, as it may be just before the end."""
        earlier = samples[0]
        for sample in samples[1:]:
            if sample[1] >= wanted and sample[1] > earlier[1]:
                return earlier[0] + (sample[0] - earlier[0]) * (wanted - earlier[1]) / (sample[1] - earlier[1]), wanted
            earlier = sample
        return samples[-1][:2]

    ends = [at(rows * part / count) for part in range(count + 1)]
    return [(come - before) / (end - begin) if end > begin else 0.0 for (begin, before), (end, come) in zip(ends, ends[1:])]


def disk(summary):
    """What the nodes of a job kept on disk, summed; None if nothing was there."""
    found = [node["disk"] for node in summary["nodes"] if node.get("disk")]
    return {key: sum(part[key] for part in found) for key in ("bytes", "reads", "writes", "written_bytes")} if found else None


def cpu(pid):
    """CPU seconds of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid):
    """Most memory that a process has held since its program began, MB; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM")), 0.0)
    except OSError:
        return 0.0


def say(*what):
    """How it goes, on standard error: results are on standard output."""
    print(*what, file=sys.stderr, flush=True)


def shown(values, digits=0):
    """The median, and the range behind it."""
    if not values:
        return "–"
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f}" + (f" ({least:,.{digits}f}–{most:,.{digits}f})" if len(values) > 1 else "")


def numbers(text):
    """`1,2,4`."""
    return [int(part) for part in text.split(",")]


def bar(holds, text):
    """A line on whether a bar holds."""
    return f"- {'holds' if holds else 'FAILS'}: {text}"


def machine():
    """The date, the machine, its load."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    return f"{datetime.date.today().isoformat()}, {model}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end."


def table(head, rows):
    """Lines of a table in Markdown."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]


def out_option(parser, part):
    """--out, with the file of results of a part as its default."""
    parser.add_argument("--out", default=os.path.join(BENCHES, "runs", datetime.date.today().isoformat(), f"e5-{part}.md"))


def finish(lines, failures, out):
    """Shows the results and keeps them; ends the process, with 1 if a cell failed."""
    text = "\n".join(lines + [""] * bool(failures) + [f"FAILED {failure}" for failure in failures]) + "\n"
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    with open(out, "w") as file:
        file.write(text)
    print(text)
    sys.exit(1 if failures else 0)


def needs(program):
    """Ends the process if a program is not built."""
    if not os.path.exists(program):
        sys.exit(f"e5.py: there is no {program}; build it first, see --help")
