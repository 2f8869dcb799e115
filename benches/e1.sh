#!/usr/bin/env bash
# VWAP by connector and by adapter, block sizes 1 to 256 and auto: elapsed, CPU (of both processes),
# throughput, latency; table, plot and verdict in benches/runs/DATE/e1/. The exit code says whether the
# bars hold (see e1.py).
#
#   TRADES   a CSV file of trades without a header line (see examples/vwap); generated ones otherwise
#   ROWS     how many are generated (default 4,000,000: of a million, worked off in a quarter of a second, the start is a tenth)
#   RUNS     rounds; connector and adapter take turns in each (default 5)
#   SIZES    block sizes (default 1,2,4,8,16,32,64,128,256,auto)
set -euo pipefail
cd "$(dirname "$0")/.."
tidemill="${CARGO_TARGET_DIR:-target}/release/tidemill"
[ -x "$tidemill" ] || cargo build --release -p tidemill
out="benches/runs/$(date +%F)/e1"
runs="${RUNS:-5}"
sizes="${SIZES:-1,2,4,8,16,32,64,128,256,auto}"
rm -rf "$out"
mkdir -p "$out"
{ uname -srm; nproc; grep -m1 'model name' /proc/cpuinfo; } > "$out/machine.txt"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

trades="${TRADES:-}"
if [ -z "$trades" ]; then
  "$tidemill" run -q --parallelism 1 -D OUT="$work/made" -D ROWS="${ROWS:-4000000}" benches/jobs/trades.sql
  # One file: a table with a watermark has a watermark for each.
  trades="$work/trades.csv"
  cat "$work"/made/* > "$trades"
fi
trades="$(realpath "$trades")"

# What a run has written goes before the next one, and each round begins with another size: else the last sizes would
# be measured with pages that the system has to find first.
IFS=, read -r -a order <<< "$sizes"
for round in $(seq "$runs"); do
  echo "round $round of $runs" >&2
  for size in "${order[@]}"; do
    "$tidemill" bench examples/vwap/vwap.sql -D IN="$trades" -D OUT="$work/out" --parallelism 1 --runs 1 \
      --vary block.size="$size" --out "$work/connector-$round.$size" > /dev/null
    rm -rf "$work/out"
    "$tidemill" bench examples/vwap/served.sql -D OUT="$work/out" --parallelism 1 --runs 1 \
      --adapter "connector=filesystem,format=csv,path=\"$trades\"" --stream trades \
      --vary block.size="$size" --out "$work/adapter-$round.$size" > /dev/null
    rm -rf "$work/out"
  done
  order=("${order[@]:1}" "${order[0]}")
done
python3 benches/e1.py "$out" "$work"
