#!/usr/bin/env bash
# Counts the instructions of lookups on AArch64, under emulation: a table of structures, scalar and NEON.
#
#   count-instructions.sh [NAME]    all structures, or those whose name begins with NAME
#
# Needs gcc, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user (7.0 or newer, for its plugins) and the target
# aarch64-unknown-linux-gnu of rustup.
set -euo pipefail
cd "$(dirname "$0")"

target=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
cargo build --quiet --release --locked -p flowlane --example count_instructions --target $target
plugin=$(mktemp --suffix=.so)
trap 'rm -f "$plugin"' EXIT
gcc -O2 -shared -fPIC -o "$plugin" examples/count_instructions.c
programs=${CARGO_TARGET_DIR:-../../target}/$target/release/examples

qemu-aarch64 -L /usr/aarch64-linux-gnu -plugin "$plugin" "$programs/count_instructions" "$@" | awk '
    $1 == "executed" && !begun { begun = 1; from = $2; next }
    $1 == "executed" { begun = 0; each[name, variant] = ($2 - from) / lookups; next }
    { name = $1; variant = $2; lookups = $3; if (!(name in seen)) { seen[name] = 1; order[++names] = name } }
    END {
        print "| structure | scalar | NEON | ratio |\n|---|---|---|---|"
        for (i = 1; i <= names; i++) {
            scalar = each[order[i], "scalar"]
            if (!((order[i], "neon") in each)) { printf "| %s | %.1f | | |\n", order[i], scalar; continue }
            neon = each[order[i], "neon"]
            printf "| %s | %.1f | %.1f | %.2f |\n", order[i], scalar, neon, neon / scalar
        }
    }
'
