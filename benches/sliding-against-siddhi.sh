#!/usr/bin/env bash
# Sliding AVG, MIN, MAX and COUNT over one second against Siddhi's #window.time in process, in turn, medians of RUNS
# rounds: Siddhi with one event a send and with 1,024, one thread each; jobs/sliding.sql at one shard. Writes
# benches/runs/DATE/sliding-siddhi.txt. Needs Maven and Java 17.
#
#   RUNS     rounds (default 3)
#   ROWS     rows of our job (default 50,000,000, a million to the second of event time)
#   WARM     seconds for which Siddhi runs before it is measured (default 16)
#   SECONDS_EACH  seconds of each of its measurements (default 5)
set -euo pipefail
cd "$(dirname "$0")/.."
tidemill="${CARGO_TARGET_DIR:-target}/release/tidemill"
[ -x "$tidemill" ] || { echo "$tidemill is missing: cargo build --release -p tidemill" >&2; exit 2; }
mvn -q -B -f tests/siddhi/pom.xml package
out="benches/runs/$(date +%F)"
mkdir -p "$out"
python3 - "$tidemill" "${RUNS:-3}" "${ROWS:-50000000}" "${WARM:-16}" "${SECONDS_EACH:-5}" <<'P' | tee "$out/sliding-siddhi.txt"
import json, os, statistics, subprocess, sys, tempfile, time

tidemill, runs, rows, warm, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
SENDS = ("1", "1024")
classes = "tests/siddhi/target/classes:tests/siddhi/target/lib/*"
siddhi = ["java", "-Xms2g", "-Xmx4g", "-cp", classes, "tidemill.siddhi.Sliding", warm, seconds, *SENDS]
print(f"AVG, MIN, MAX and COUNT over 1 s: Siddhi in process, {seconds} s each, and jobs/sliding.sql of {rows:,} rows, in turn")
rates = {name: [] for name in (*SENDS, "ours")}
for _ in range(runs):
    for line in subprocess.run(siddhi, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.splitlines():
        send, rate = line.split()
        rates[send].append(float(rate))
    time.sleep(2)
    with tempfile.TemporaryDirectory() as work:
        metrics = f"{work}/metrics.json"
        job = ["benches/jobs/sliding.sql", "-D", f"ROWS={rows}", "-D", "SPAN='1' SECOND", "--parallelism", "1", "--metrics", metrics]
        subprocess.run([tidemill, "run", "--quiet", *job], check=True)
        with open(metrics) as file:
            rates["ours"].append(rows / json.load(file)["elapsed_s"])
median = {name: statistics.median(found) for name, found in rates.items()}
for name, found in rates.items():
    label = "tidemill" if name == "ours" else f"Siddhi, {name} a send"
    ratio = "" if name == "ours" else f"   ratio {median['ours'] / median[name]:.1f}"
    print(f"{label:22} {median[name] / 1e6:6.2f} M events/s ({min(found) / 1e6:.2f} to {max(found) / 1e6:.2f}){ratio}")
P
