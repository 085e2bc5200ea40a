#!/usr/bin/env bash
# Fuzzes the given targets (default: all) for MINUTES each (default: 10):
#     fuzz/run.sh [MINUTES [TARGET...]]
# Starts from corpus/ and the inputs of earlier runs (target/corpus/). Crashing inputs are minimized and stored in
# regressions/TARGET/, where plain `cargo test` replays them; the exit status is then 1.
# Needs nightly Rust and cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")"

minutes=${1:-10}
if ! [[ $minutes =~ ^[1-9][0-9]*$ ]]; then
    echo "fuzz/run.sh: \`$minutes\` is not a number of minutes; for example: fuzz/run.sh 10 switch" >&2
    exit 2
fi
shift || true
mapfile -t all < <(cd fuzz_targets && printf '%s\n' *.rs | sed 's/\.rs$//')
targets=("${@:-${all[@]}}")
for target in "${targets[@]}"; do
    if [ ! -f "fuzz_targets/$target.rs" ]; then
        echo "fuzz/run.sh: unknown target \`$target\`; targets: ${all[*]}" >&2
        exit 2
    fi
done
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "fuzz/run.sh: needs nightly Rust and cargo-fuzz: rustup toolchain install nightly && cargo +nightly install cargo-fuzz" >&2
    exit 3
fi

found=0
for target in "${targets[@]}"; do
    mkdir -p "target/corpus/$target" "target/crashes/$target" "regressions/$target"
    rm -f "target/crashes/$target"/*
    echo "$target: $minutes minutes"
    if cargo +nightly fuzz run "$target" "target/corpus/$target" "corpus/$target" "regressions/$target" -- \
        -max_total_time=$((minutes * 60)) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="target/crashes/$target/" >"target/$target.log" 2>&1; then
        grep -E '^stat::(number_of_executed_units|new_units_added|peak_rss_mb)' "target/$target.log"
        continue
    fi
    found=1
    for crash in "target/crashes/$target"/*; do
        if [ ! -f "$crash" ]; then
            echo "$target: could not be run; see fuzz/target/$target.log" >&2
            tail -5 "target/$target.log" >&2
            continue
        fi
        small="regressions/$target/$(basename "$crash")"
        cp "$crash" "$small"
        cargo +nightly fuzz tmin "$target" "$crash" -r 1000 >"target/$target.tmin.log" 2>&1 &&
            cp "$(ls -t "artifacts/$target"/minimized-* | head -1)" "$small"
        echo "$target: crashes, see fuzz/$small and fuzz/target/$target.log"
    done
done
exit "$found"
