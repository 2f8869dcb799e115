"""Commands that are measured: seconds, CPU and peak memory of a process and what it starts, within a time that is bounded; the
page cache and the disk as a run shall find them; the SVG of bars that E2 and E3 share. Linux, Python's standard library only."""

import contextlib
import html
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field

from common import TIDEMILL, peak_mb

# Seconds that one command may take.
RUN_MAX = 1_800
# Seconds that a server may take to start.
START_MAX = 60
BLOCK = 1 << 20
# Seconds between two looks at the memory of a command, 0.03 ms a process: what it grows by in its last 20 ms is missed.
LOOK_EVERY = 0.02
# Seconds between two looks for the processes of a command, 2 ms where there are a hundred: one that lives shorter may be missed.
ASK_EVERY = 0.2


@dataclass
class Done:
    """What a command did. Memory is that of the largest process, where a command is several: what a job of ours says of
    itself, and what `Peak` sees of others."""

    seconds: float
    cpu_s: float
    peak_mb: float
    out: str
    # The job's own summary, for ours.
    summary: dict = field(default_factory=dict)


def start(command, **options):
    """A process with a group of its own, so that it ends together with what it starts."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)


def end(process):
    """Ends a process of `start`, and what it started, if it has not ended."""
    if process.returncode is None and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(START_MAX)


class Peak(threading.Thread):
    """Watches how much memory a process of `start` and those that it started hold, from `start` until `end`, which must come before the
    process is waited for.

    Not by `ru_maxrss`, what the system says when a process has ended: that begins with the peak of whoever started it, here
    that of Python and all that it has loaded, because it outlives execve(2)."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.mb, self.over = pid, 0.0, threading.Event()

    def run(self):
        known, asked = [self.pid], time.monotonic()
        while not self.over.is_set():
            self.mb = max([self.mb, *map(peak_mb, known)])
            self.over.wait(LOOK_EVERY)
            if time.monotonic() - asked >= ASK_EVERY:
                known, asked = in_session(self.pid), time.monotonic()

    def end(self):
        """The most that one of them held, MB; 0 if it was not watched."""
        self.over.set()
        if self.is_alive():
            self.join()
        return self.mb


def in_session(leader):
    """The processes of a session, its leader among them."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        # It may have just ended.
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            if int(file.read().rsplit(")", 1)[1].split()[3]) == leader:
                found.append(pid)
    return found


def measured(command, env=None, limit=RUN_MAX, watched=True):
    """Runs a command to its end, with nothing on its standard input; one that fails or takes longer than `limit` seconds is an error.
    One that says itself how much memory it held need not be watched, which takes a hundredth of a processor."""
    name = os.path.basename(command[0])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begun = time.perf_counter()
        process = start(command, stdout=out, stderr=errors, env={**os.environ, **(env or {})})
        peak = Peak(process.pid)
        if watched:
            peak.start()
        try:
            waiting = os.pidfd_open(process.pid)
            try:
                ready, _, _ = select.select([waiting], [], [], limit)
            finally:
                os.close(waiting)
            if not ready:
                raise RuntimeError(f"{name} took more than {limit} s")
            seconds = time.perf_counter() - begun
            peak.end()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            peak.end()
            end(process)
        out.seek(0)
        errors.seek(0)
        text = out.read().decode(errors="replace")
        if process.returncode != 0:
            said = errors.read().decode(errors="replace").strip()[-600:]
            raise Ended(process.returncode, f"{name} ended with {process.returncode}: {said}")
        return Done(seconds, usage.ru_utime + usage.ru_stime, peak.mb, text)


class Ended(RuntimeError):
    """A command that ended badly."""

    def __init__(self, code, what):
        super().__init__(what)
        self.code = code


def shell(script, *arguments, **options):
    """A line of bash; any part of a pipe that fails is an error."""
    return measured(["bash", "-o", "pipefail", "-c", script, "bash", *arguments], **options)


def job(path, values, parallelism, wrap=lambda command: command, **options):
    """Our job of a file, with `parallelism` shards (None: as it finds best)."""
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary.json")
        command = [TIDEMILL, "run", "-q", path, "--metrics", summary]
        command += ["--parallelism", str(parallelism)] if parallelism else []
        for key, value in values.items():
            command += ["-D", f"{key}={value}"]
        done = measured(wrap(command), watched=False, **options)
        with open(summary) as file:
            done.summary = json.load(file)
        done.peak_mb = done.summary["peak_memory_bytes"] / 2**20
        return done


@contextlib.contextmanager
def server(command):
    """A server that prints its address as its first line; gives the address."""
    with tempfile.TemporaryFile() as errors:
        process = start(command, stdout=subprocess.PIPE, stderr=errors)
        try:
            ready, _, _ = select.select([process.stdout], [], [], START_MAX)
            address = process.stdout.readline().decode().strip() if ready else ""
            if not address:
                errors.seek(0)
                raise RuntimeError(f"{os.path.basename(command[0])} did not start: {errors.read().decode(errors='replace')[-400:]}")
            yield address
        finally:
            end(process)
            process.stdout.close()


def warm(paths):
    """Reads files, so that the page cache holds them."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(BLOCK):
                pass


def drop(paths):
    """Takes files out of the page cache. What was written is put on the disk before: only such pages can go."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def below(folder):
    """All files below a folder, sorted."""
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


def size(paths):
    """Bytes of files together."""
    return sum(os.path.getsize(path) for path in paths)


class Throttle:
    """A control group whose processes read at most `rate` bytes a second from the disk that `path` lies on. Needs a root who
    may make control groups.

    Raises OSError where that cannot be done."""

    V1, V2 = "/sys/fs/cgroup/blkio", "/sys/fs/cgroup"

    def __init__(self, path, rate):
        device = os.stat(path).st_dev
        block = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
        # A partition is limited together with the disk that it is of.
        at = os.path.realpath(block)
        with open(os.path.join(os.path.dirname(at) if os.path.exists(f"{block}/partition") else at, "dev")) as file:
            disk = file.read().strip()
        if os.path.exists(f"{self.V1}/blkio.throttle.read_bps_device"):
            parent, limit, line = self.V1, "blkio.throttle.read_bps_device", f"{disk} {rate}"
        else:
            parent, limit, line = self.V2, "io.max", f"{disk} rbps={rate}"
            with open(f"{parent}/cgroup.subtree_control", "w") as file:
                file.write("+io")
        self.group = f"{parent}/tidemill-bench-{os.getpid()}"
        os.mkdir(self.group)
        try:
            with open(f"{self.group}/{limit}", "w") as file:
                file.write(line)
        except OSError:
            os.rmdir(self.group)
            raise

    def wrap(self, command):
        """The command, which goes into the group before it begins."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{self.group}/cgroup.procs", *command]

    def close(self):
        """Removes the group; its last process may need a moment to be gone."""
        for _ in range(50):
            with contextlib.suppress(OSError):
                os.rmdir(self.group)
                return
            time.sleep(0.1)


class Cells:
    """What was measured, cell by cell, round by round."""

    def __init__(self, say):
        self.say, self.done, self.failures, self.absent = say, {}, [], {}

    def attempt(self, name, run, check=None):
        """Measures a cell once more. One that fails is told, and the others are measured; one that cannot be is left out."""
        if name in self.absent:
            return
        try:
            done = run()
            if check is not None and (wrong := check(done)):
                raise RuntimeError(wrong)
            self.done.setdefault(name, []).append(done)
            self.say(f"{name}: {done.seconds:.2f} s, {done.cpu_s:.2f} s of CPU, {done.peak_mb:.0f} MB")
        except Absent as e:
            self.absent[name] = str(e)
            self.say(f"{name}: left out: {e}")
        except Exception as e:
            self.failures.append(f"{name}: {e}")
            self.say(f"FAILED {self.failures[-1]}")

    def seconds(self, name):
        """The median; None if there is none."""
        runs = self.done.get(name)
        return statistics.median(run.seconds for run in runs) if runs else None

    def ratio(self, above, below):
        """Seconds of one over those of the other; None if one is missing."""
        a, b = self.seconds(above), self.seconds(below)
        return a / b if a and b else None

    def peak(self, name):
        """The most memory of any round, MB."""
        runs = self.done.get(name)
        return max(run.peak_mb for run in runs) if runs else None


class Absent(RuntimeError):
    """Something that is not installed, or cannot do what is asked of it."""


def importable(python, module):
    """Whether a Python has a module; a Python that is not there has none."""
    try:
        measured([python, "-c", f"import {module}"], limit=START_MAX)
        return True
    except (OSError, RuntimeError):
        return False


def plain(text, work, root):
    """A report without the directories of this machine."""
    return text.replace(os.path.abspath(work), "WORK").replace(root, ".").replace(os.path.expanduser("~"), "~")


def needed(program):
    """Where a program is."""
    found = shutil.which(program)
    if found is None:
        raise Absent(f"{program} is not installed")
    return found


def bars(title, rows):
    """Bars, one below the other, as SVG. Rows: (caption, seconds, whether it is ours); None for a gap."""
    left, width, step, top = 340, 820, 20, 40
    longest = max((row[1] for row in rows if row), default=1) or 1
    height = top + step * len(rows) + 16
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="14">{html.escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        if row is None:
            continue
        caption, seconds, ours = row
        y = top + step * number
        length = (width - left - 80) * seconds / longest
        out.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{html.escape(caption)}</text>')
        color = "#1664a5" if ours else "#b0b0b0"
        out.append(f'<rect x="{left}" y="{y + 2}" width="{max(length, 1):.1f}" height="{step - 5}" fill="{color}"/>')
        out.append(f'<text x="{left + length + 6:.1f}" y="{y + 13}">{seconds:.2f} s</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
