#!/usr/bin/env bash
# Everything that needs a CUDA device, in one go: what the device is, every engine against the CPU on generated sets, the
# switch with a table on it, then the benchmark, which compares the engines with each other before it times them. The first
# thing to run on a machine that has a device. The checks take one minute, the benchmark six or more.
#
#   crates/flowlane-gpu/check-device.sh [FLOWLANE [FOLDER]]
#
# FLOWLANE is the program (built here where it is not named), FOLDER where results are left. EFFORT is how long the benchmark
# measures: `--seconds 240` where nothing is said, `--rounds 3` for a quarter of the least that seconds allow.
set -euo pipefail

flowlane=${1:-}
out=${2:-gpu-results}
if [ -z "$flowlane" ]; then
    cargo build --profile dist -p flowlane-cli
    flowlane=${CARGO_TARGET_DIR:-target}/dist/flowlane
fi
mkdir -p "$out"
"$flowlane" cpu | tee "$out/machine.txt"

failed=0
printf '\n%-14s %-8s %7s %10s %14s %s\n' engine profile rules answers lookups/s differences | tee "$out/checks.txt"
for profile in acl fw ipc; do
    for rules in 1000 10000; do
        "$flowlane" generate rules --profile $profile --count $rules --seed 7 --output "$out/rules"
        # A set with a rule that matches everything has no misses.
        "$flowlane" generate trace --rules "$out/rules" --count 200000 --miss 0.05 --output "$out/trace" 2>/dev/null ||
            "$flowlane" generate trace --rules "$out/rules" --count 200000 --miss 0 --output "$out/trace"
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

# The whole switch: what each rule counts must be what it counts with tuple search, with the caches and without.
printf '\n%-14s %-8s %10s %14s %s\n' table caches packets packets/s differences | tee "$out/switch.txt"
"$flowlane" generate rules --profile acl --count 1000 --seed 1 --output "$out/rules"
switch() {
    cat >"$out/switch.toml" <<END
[cache]
megaflows_max = $2
[gpu]
method = "$3"
[[port]]
number = 1
open = "gen:acl,count=1000000,flows=100000"
[[table]]
number = 0
engine = "$1"
rules_file = "rules"
END
    "$flowlane" switch run "$out/switch.toml" --json >"$out/switch.json"
    sed -n '/"tables": \[/,/"route_tables"/p' "$out/switch.json" | grep -E '"(matches|packets|missed_packets|trouble)"' >"$out/$4"
}
for megaflows in 0 200000; do
    switch tuple $megaflows auto expected.counts
    for method in linear tuple bloom vector filtered pruned; do
        switch gpu $megaflows $method answers.counts
        wrong=$({ diff "$out/expected.counts" "$out/answers.counts" || true; } | { grep -c '^[<>]' || true; })
        [ "$wrong" = 0 ] || failed=1
        rate=$(awk -F'[:,]' '/"seconds"/ {printf "%.0f", 1000000 / $2; exit}' "$out/switch.json")
        printf 'gpu, %-9s %-8d %10d %14s %s\n' $method $megaflows 1000000 "$rate" "$wrong" | tee -a "$out/switch.txt"
    done
done

"$flowlane" bench gpu ${EFFORT:---seconds 240} --report "$out/bench.html" | tee "$out/bench.txt"
rm -f "$out/rules" "$out/trace" "$out/expected.csv" "$out/answers.csv" "$out/summary.txt" "$out/switch.toml" "$out/switch.json" "$out/expected.counts" "$out/answers.counts"
exit $failed
