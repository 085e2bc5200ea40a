#!/usr/bin/env bash
# Everything that needs a CUDA device, in one go: what the device is, every engine against the CPU on generated sets, then the
# benchmark, which compares the engines with each other before it times them. The first thing to run on a machine that has a device. Takes about ten minutes.
#
#   crates/flowlane-gpu/check-device.sh [FLOWLANE [FOLDER]]
#
# FLOWLANE is the program (built here where it is not named), FOLDER where results are left.
set -euo pipefail

flowlane=${1:-}
out=${2:-gpu-results}
if [ -z "$flowlane" ]; then
    cargo build --release -p flowlane-cli
    flowlane=${CARGO_TARGET_DIR:-target}/release/flowlane
fi
mkdir -p "$out"
"$flowlane" cpu | tee "$out/machine.txt"

failed=0
printf '\n%-14s %-8s %7s %10s %14s %s\n' engine profile rules answers lookups/s differences | tee "$out/checks.txt"
for profile in acl fw ipc; do
    for rules in 1000 10000; do
        "$flowlane" generate rules --profile $profile --count $rules --seed 7 --output "$out/rules"
        "$flowlane" generate trace --rules "$out/rules" --count 200000 --miss 0.05 --output "$out/trace"
        "$flowlane" classify --rules "$out/rules" --trace "$out/trace" --engine tree --output "$out/expected.csv" 2>/dev/null
        for engine in gpu-linear gpu-tuple gpu-bloom gpu-vector gpu-filtered gpu-pruned; do
            if "$flowlane" classify --rules "$out/rules" --trace "$out/trace" --engine $engine --batch 65536 \
                --output "$out/answers.csv" 2>"$out/summary.txt"; then
                rate=$(awk -F'|' '/lookups\/s/ {gsub(/ /, "", $3); print $3}' "$out/summary.txt")
                wrong=$({ diff "$out/expected.csv" "$out/answers.csv" || true; } | { grep -c '^[<>]' || true; })
                # What the device did not answer was not checked.
                grep -q 'then the CPU' "$out/summary.txt" && wrong="the device failed"
            else
                rate=-
                wrong=$(tail -n 1 "$out/summary.txt")
            fi
            [ "$wrong" = 0 ] || failed=1
            printf '%-14s %-8s %7d %10d %14s %s\n' $engine $profile $rules 200000 "$rate" "$wrong" | tee -a "$out/checks.txt"
        done
    done
done

"$flowlane" bench gpu --seconds "${SECONDS_FOR_BENCH:-240}" --report "$out/bench.html" | tee "$out/bench.txt"
rm -f "$out/rules" "$out/trace" "$out/expected.csv" "$out/answers.csv" "$out/summary.txt"
exit $failed
