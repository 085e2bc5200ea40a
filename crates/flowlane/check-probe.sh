#!/usr/bin/env bash
# Whether probes (src/probe.rs) leave anything in lookups that nobody listens to. x86-64 Linux; needs objdump and nm (binutils)
# and, to count instructions, valgrind.
#
# The library is built twice, as handed out (the profile dist, which keeps names): as it is, and from a copy whose sources
# lack every statement that tells a probe something. examples/probe_cost.rs calls the lookups. It fails
#   - where the binary has a symbol of a probe, or a call to one;
#   - where a lookup's machine code differs between the two, but for addresses, unless valgrind counts no more than one
#     instruction in a thousand more for it (registers may be given out otherwise).
# Both builds are kept in target/probe: minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "$(uname -sm)" != "Linux x86_64" ] || ! command -v objdump >/dev/null || ! command -v nm >/dev/null; then
    echo "skipped: machine code is compared on Linux on x86-64 with binutils"
    exit 0
fi
work=$PWD/target/probe
mkdir -p "$work/with" "$work/without"
for copy in with without; do
    # Whole copies, so that both have paths of the same kind; cargo notices what is newer.
    rm -rf "${work:?}/$copy/crates"
    cp -rp Cargo.toml Cargo.lock rust-toolchain.toml crates "$work/$copy/"
done
find "$work/without/crates/flowlane/src" -name '*.rs' -exec grep -lE '^ *probe\.(load|alu|branch)\(' {} + |
    while read -r file; do
        awk '/^ *probe\.(load|alu|branch)\(/ { telling = 1 }
             telling { if (/;$/) telling = 0; next }
             { print }' "$file" >"$work/stripped.rs"
        cp "$work/stripped.rs" "$file"
        touch "$file"
    done
if diff -rq "$work/with/crates" "$work/without/crates" >/dev/null; then
    echo "no statement that tells a probe something was found: has the form of the sources changed?"
    exit 1
fi
for copy in with without; do
    echo "building $copy probes .."
    (cd "$work/$copy" && CARGO_TARGET_DIR=$work/$copy/target RUSTFLAGS="--cap-lints allow" \
        cargo build --quiet --profile dist -p flowlane --example probe_cost)
done
binary() { echo "$work/$1/target/dist/examples/probe_cost"; }

failed=0
if nm -C "$(binary with)" | grep -E 'flowlane::probe|NoProbe'; then
    echo "FAILED: symbols of probes, above"
    failed=1
fi

# One line for each function of the lookups: its name, and its code without addresses.
code() {
    objdump -d -C --no-show-raw-insn --section=.text "$(binary "$1")" | awk '
        /^[0-9a-f]+ </ {
            if (name != "") print name "\t" body
            sub(/^[0-9a-f]+ /, ""); sub(/:$/, "")
            name = /(cuckoo::(scalar|lanes|avx512)|CuckooTable<.*>::(lookup|batch)|probe_cost::find)/ ? $0 : ""
            body = ""
            next
        }
        name != "" && /^ *[0-9a-f]+:/ {
            sub(/^ *[0-9a-f]+:[ \t]*/, ""); sub(/ *#.*/, "")
            gsub(/-?0x[0-9a-f]+\(%rip\)/, "(%rip)")
            if ($1 ~ /^(j|call)/) sub(/[0-9a-f]+ </, "<")
            if ($1 != "int3") body = body $0 ";"
        }
        END { if (name != "") print name "\t" body }' | LC_ALL=C sort
}
code with >"$work/with.code"
code without >"$work/without.code"
functions=$(wc -l <"$work/with.code")
if [ "$functions" -lt 8 ]; then
    echo "FAILED: only $functions functions of lookups were found: have their names changed?"
    exit 1
fi
differ=$(LC_ALL=C comm -23 "$work/with.code" "$work/without.code" | cut -f1)
echo "$functions functions; with other machine code than without probes: ${differ:-none}"

if ! command -v valgrind >/dev/null; then
    echo "skipped: instructions are not counted without valgrind"
    if [ -n "$differ" ]; then
        echo "FAILED: machine code differs, above, and nothing says that it is no worse"
        failed=1
    fi
else
    counted() { # COPY PART ROUNDS
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$(binary "$1")" "$2" "$3" 2>&1 |
            awk '/Collected/ { print $NF }'
    }
    for part in hit:4096 miss:4096 batch:4096; do
        lookups=$((32 * ${part#*:}))
        # The difference of 33 rounds and one: what makes the tables is not counted, and what differs in it from run to run
        # (seeds of hash maps) weighs little.
        for copy in without with; do
            declare "$copy=$(($(counted $copy "${part%:*}" 33) - $(counted $copy "${part%:*}" 1)))"
        done
        # shellcheck disable=SC2154
        awk -v part="${part%:*}" -v n=$lookups -v without="$without" -v with="$with" 'BEGIN {
            printf "%-7s instructions a lookup: without probes %.2f, with %.2f\n", part, without / n, with / n
            exit without < 1000 || with > without * 1.001 }' || { echo "FAILED: more than one in a thousand"; failed=1; }
    done
fi
[ $failed = 0 ] && echo "probes that nobody listens to leave nothing"
exit $failed
