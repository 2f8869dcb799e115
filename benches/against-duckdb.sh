#!/usr/bin/env bash
# `tidemill sql` against DuckDB (Python package duckdb) on one CSV of about 1 GB: count, sum and group,
# in turn, medians of RUNS runs. Writes a table to standard output and benches/runs/DATE/duckdb.txt.
#
#   PYTHON   a Python that can import duckdb (default python3)
#   CSV      the file (default: 1 GB of generated trades, made once in a temporary directory)
set -euo pipefail
cd "$(dirname "$0")/.."
tidemill="${CARGO_TARGET_DIR:-target}/release/tidemill"
python="${PYTHON:-python3}"
runs="${RUNS:-5}"
"$python" -c 'import duckdb' || { echo "duckdb is missing: $python -m pip install duckdb" >&2; exit 2; }
if [ -z "${CSV:-}" ]; then
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  "$tidemill" run -q -D OUT="$work/trades" -D ROWS=17000000 benches/jobs/trades.sql
  CSV="$work/trades.csv"
  cat "$work"/trades/part-* > "$CSV"
  rm -r "$work/trades"
fi
out="benches/runs/$(date +%F)"
mkdir -p "$out"
"$python" - "$tidemill" "$CSV" "$runs" <<'P' | tee "$out/duckdb.txt"
import os, statistics, subprocess, sys, time

tidemill, csv, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
queries = {
    "count": "SELECT COUNT(*) FROM {t}",
    "sum": "SELECT SUM({price}), SUM({size}) FROM {t}",
    "group": "SELECT {symbol}, COUNT(*), AVG({price}) FROM {t} GROUP BY {symbol}",
}
names = {"tidemill": "_c{}", "duckdb": "column{}"}
print(f"{os.path.basename(csv)}: {os.path.getsize(csv) / 1e9:.2f} GB, medians of {runs} runs, seconds")


def seconds(command):
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def columns(engine):
    if engine == "tidemill":
        command = [tidemill, "sql", f"SELECT * FROM '{csv}' LIMIT 1", "--output", "csv"]
        head = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0].split(",")
    else:
        import duckdb

        head = [c[0] for c in duckdb.sql(f"SELECT * FROM '{csv}' LIMIT 1").description]
    quote = "`{}`" if engine == "tidemill" else '"{}"'
    return {"symbol": quote.format(head[0]), "price": quote.format(head[2]), "size": quote.format(head[3])}


for name, query in queries.items():
    texts = {engine: query.format(t=f"'{csv}'", **columns(engine)) for engine in names}
    commands = {
        "tidemill": [tidemill, "sql", texts["tidemill"]],
        "duckdb": [sys.executable, "-c", f"import duckdb; duckdb.sql({texts['duckdb']!r}).fetchall()"],
    }
    times = {engine: [] for engine in names}
    for _ in range(runs):
        for engine, command in commands.items():
            times[engine].append(seconds(command))
    median = {engine: statistics.median(t) for engine, t in times.items()}
    print(f"{name:6} tidemill {median['tidemill']:.2f}  duckdb {median['duckdb']:.2f}  ratio {median['duckdb'] / median['tidemill']:.2f}")
P
