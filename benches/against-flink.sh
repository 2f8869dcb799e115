#!/usr/bin/env bash
# A job against Apache Flink 2.3 on the same machine and files: in turn, medians of RUNS runs, the same lines from both.
# Writes a table to standard output and benches/runs/DATE/flink-JOB.txt.
#
#   JOB      a job over trades in CSV, from ${IN} to ${OUT} (default examples/vwap/vwap.sql)
#   TRADES   a CSV file of trades without a header line (see examples/vwap), or a directory of such files
#   GATEWAY  a running Flink SQL Gateway (default http://127.0.0.1:18083), with as many slots as cores
#   JOBS     its JobManager's REST address (default http://127.0.0.1:18081)
#   PIDS     process ids of JobManager and TaskManager, to add up their CPU time
set -euo pipefail
cd "$(dirname "$0")/.."
: "${TRADES:?a CSV file of trades}"
job="${JOB:-examples/vwap/vwap.sql}"
tidemill="${CARGO_TARGET_DIR:-target}/release/tidemill"
out="benches/runs/$(date +%F)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
python3 - "$tidemill" "$job" "$TRADES" "$work" "${RUNS:-3}" <<'P' | tee "$out/flink-$(basename "$job" .sql).txt"
import json, os, re, resource, shutil, statistics, subprocess, sys, time, urllib.request

tidemill, sql, trades, work, runs = sys.argv[1], sys.argv[2], os.path.abspath(sys.argv[3]), sys.argv[4], int(sys.argv[5])
gateway = os.environ.get("GATEWAY", "http://127.0.0.1:18083")
jobs = os.environ.get("JOBS", "http://127.0.0.1:18081")
pids = os.environ.get("PIDS", "").split()


def lines(path):
    files = [path] if os.path.isfile(path) else [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
    return sum(sum(1 for _ in open(file, "rb")) for file in files if not os.path.basename(file).startswith((".", "_")))


rows = lines(trades)


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def statements(text):
    text = re.sub(r"^--.*\n", "", text, flags=re.M)
    head, tail = re.split(r"(?=EXECUTE STATEMENT SET|INSERT INTO)", text, maxsplit=1)
    return [s for s in (p.strip() for p in head.split(";")) if s] + [tail.strip().rstrip(";")]


def cpu_of_flink():
    ticks = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def flink(out):
    text = open(sql).read().replace("${IN}", f"file://{trades}").replace("${OUT}", f"file://{out}")
    session = f"{gateway}/v3/sessions/" + call("POST", f"{gateway}/v3/sessions", {})["sessionHandle"]
    for statement in statements(text):
        begin, cpu = time.perf_counter(), cpu_of_flink()
        operation = call("POST", f"{session}/statements", {"statement": statement})["operationHandle"]
        while (result := call("GET", f"{session}/operations/{operation}/result/0?rowFormat=JSON"))["resultType"] == "NOT_READY":
            time.sleep(0.05)
    job = result["jobID"]
    while (state := call("GET", f"{jobs}/jobs/{job}"))["state"] not in ("FINISHED", "FAILED", "CANCELED"):
        time.sleep(0.05)
    assert state["state"] == "FINISHED", state["state"]
    elapsed, cpu = time.perf_counter() - begin, cpu_of_flink() - cpu
    call("DELETE", session)
    return elapsed, cpu


def ours(out):
    # The median of five runs: one takes a second where Flink takes a minute, and the first ones fill pages that a virtual machine
    # has to ask its host for, while Flink's processes keep their memory.
    figures = []
    for to in [f"{out}-{run}" for run in range(4)] + [out]:
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([tidemill, "run", "-q", sql, "-D", f"IN={trades}", "-D", f"OUT={to}"], check=True)
        elapsed, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        figures.append((elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        if to != out:
            shutil.rmtree(to)
    return [statistics.median(column) for column in zip(*figures)]


figures, results = {"flink": [], "tidemill": []}, set()
for run in range(runs):
    for name, engine in (("flink", flink), ("tidemill", ours)):
        out = os.path.join(work, f"{name}-{run}")
        # What the other still does at its end shall not count here.
        time.sleep(5)
        figures[name].append(engine(out))
        results.add(lines(out))
        shutil.rmtree(out)
assert len(results) == 1, f"the engines differ in lines: {results}"
print(f"{sql}: {rows} trades to {results.pop()} lines, medians of {runs} runs")
median = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in figures.items()}
for name, (elapsed, cpu) in median.items():
    print(f"{name:9} {elapsed:7.2f} s  {rows / elapsed / 1e6:.3f} M rows/s  {cpu:7.1f} CPU-s")
print(f"ratio of rates {median['flink'][0] / median['tidemill'][0]:.1f}, of CPU {median['flink'][1] / median['tidemill'][1]:.1f}")
P
