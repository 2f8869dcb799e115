#!/usr/bin/env bash
# Runs the benchmarks and keeps the results dated under benches/runs/. Every figure is a median of
# several interleaved runs of this machine; compare ratios within one run, not figures of two.
set -euo pipefail
cd "$(dirname "$0")/.."
tidemill="${CARGO_TARGET_DIR:-target}/release/tidemill"
[ -x "$tidemill" ] || cargo build --release -p tidemill
out="benches/runs/$(date +%F)"
runs="${RUNS:-5}"
mkdir -p "$out"
{ uname -srm; nproc; grep -m1 'model name' /proc/cpuinfo; } > "$out/machine.txt"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$tidemill" bench benches/jobs/filter.sql -D ROWS=100000000 --parallelism 1 --runs "$runs" --out "$out/filter-auto"
"$tidemill" bench benches/jobs/filter.sql -D ROWS=5000000 --parallelism 1 --set block.size=1 --runs "$runs" --out "$out/filter-1"
"$tidemill" bench benches/jobs/tumble.sql -D ROWS=50000000 --vary parallelism=1,2 --runs "$runs" --out "$out/tumble"
"$tidemill" bench benches/jobs/group.sql -D ROWS=30000000 --vary parallelism=1,2 --memory 2GB --runs "$runs" --out "$out/group"

# VWAP over a CSV: the real trades if TRADES names a file of them (no header line), generated ones otherwise.
if [ -n "${TRADES:-}" ]; then
  trades="$TRADES"
else
  trades="$work/trades"
  "$tidemill" run -q -D OUT="$trades" -D ROWS=1000000 benches/jobs/trades.sql
fi
"$tidemill" bench examples/vwap/vwap.sql -D IN="$trades" -D OUT="$work/out" --vary block.size=1,2,4,8,16,32,64,128,256,auto --parallelism 1 --runs "$runs" --out "$out/vwap"
"$tidemill" bench examples/vwap/vwap.sql -D IN="$trades" -D OUT="$work/out" --vary parallelism=1,2 --runs "$runs" --out "$out/vwap-parallel"

# Patterns, sliding windows, Nexmark. Checkpoints are on where a state directory is given.
"$tidemill" bench benches/jobs/pattern.sql -D ROWS=50000000 --parallelism 1 --runs "$runs" --out "$out/pattern"
"$tidemill" bench examples/soccer/goals.sql -D ROWS=100000000 --parallelism 1 --runs "$runs" --out "$out/soccer"
for span in SECOND MINUTE HOUR; do
  "$tidemill" bench benches/jobs/sliding.sql -D ROWS=100000000 -D SPAN="'1' $span" --memory 12GB --parallelism 1 --runs "$runs" --out "$out/sliding-$span"
done
"$tidemill" bench examples/nexmark -D EVENTS=5000000 -D OUT="$work/nexmark" --parallelism 1 --state-dir "$work/state" --runs "$runs" --out "$out/nexmark"
