#!/usr/bin/env bash
# Fuzzes the targets one after the other, keeps what was found worth keeping, and notes each run.
#
#   fuzz/run.sh [SECONDS [TARGET…]]     600 seconds and all targets by default
#
# Ends with the first finding. CARGO_FUZZ may name another command than `cargo +nightly fuzz`.
set -euo pipefail
cd "$(dirname "$0")"
seconds="${1:-600}"
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(siddhi_frame csv csv_ranges json fixed packed zip sas flight flight_call arrow kafka mqtt_packet
  parquet_page redis_resp)
read -r -a fuzz <<< "${CARGO_FUZZ:-cargo +nightly fuzz}"
# The longest input, bytes: the decoders know no state beyond a few records, and small corpora are kept.
length_max=4096
[ -d seeds/flight ] || cargo run --quiet --manifest-path Cargo.toml --example flight_seeds
[ -d seeds/arrow ] || cargo run --quiet --manifest-path Cargo.toml --example arrow_seeds

for target in "${targets[@]}"; do
  mkdir -p "corpus/$target"
  log="$(mktemp)"
  features=()
  [ "$target" != kafka ] || features=(--features kafka)
  echo "$target: $seconds s" >&2
  if ! (cd .. && "${fuzz[@]}" run "${features[@]}" "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
      -max_total_time="$seconds" -max_len="$length_max" -rss_limit_mb=4096 -timeout=10 -print_final_stats=1) > "$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "$target: a finding, see fuzz/artifacts/$target" >&2
    exit 1
  fi
  executed="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  rm -f "$log"
  # What the seeds reach already need not be kept twice: they are part of every run.
  (cd .. && "${fuzz[@]}" cmin "${features[@]}" "$target" "fuzz/corpus/$target") > /dev/null 2>&1
  files="$(find "corpus/$target" -type f | wc -l)"
  bytes="$(find "corpus/$target" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }')"
  echo "$(date +%F) $target $seconds s, ${executed:-?} executions, no finding; corpus $files files, $bytes bytes" | tee -a runs.txt
done
