#!/usr/bin/env bash
# Prints names and licences of third-party software in a package: a line per crate, then each licence text once.
#   packaging/licences.sh TARGET MANIFEST [OPTION OF CARGO TREE]..
# Requires Rust, and the crates' sources (from `cargo build` or `cargo fetch`).
set -euo pipefail
target=$1 manifest=$2
shift 2
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Own crates have a path in the tree: (/…/crates/flowlane). Procedural macros are not part of packages.
cargo tree --locked --manifest-path "$manifest" --target "$target" --edges normal,no-proc-macro --prefix none \
    --format '{p}|{l}|{r}' "$@" >"$work/tree"
grep -v '(/' "$work/tree" | sed 's/ (\*)$//' | LC_ALL=C sort -u >"$work/crates"

rust=$(rustc --version)
echo "Third-party software in this package, each under its own licence. Licence texts follow at the end."
echo
echo "The standard library of ${rust% (*} | MIT OR Apache-2.0 | https://github.com/rust-lang/rust"
texts=0
while IFS='|' read -r crate licence repository; do
    crate=${crate% }
    if [ -z "$licence" ]; then
        echo "licences.sh: $crate has no licence field; find out its licence, and check it against deny.toml" >&2
        exit 1
    fi
    folder=$(compgen -G "$sources/*/${crate/ v/-}" | head -n 1) || {
        echo "licences.sh: sources of $crate not found in $sources; fetch them (cargo fetch --manifest-path $manifest)" >&2
        exit 1
    }
    numbers=
    while IFS= read -r -d '' file; do
        # Texts that differ in line breaks only are identical.
        hash=$(tr -s '[:space:]' ' ' <"$file" | sha256sum)
        hash=$work/${hash%% *}
        if [ ! -e "$hash" ]; then
            texts=$((texts + 1))
            echo "$texts" >"$hash"
            { printf '\n%s\nText %s\n\n' "$(printf '%.0s-' {1..80})" "$texts" && tr -d '\r' <"$file"; } >>"$work/texts"
        fi
        numbers+=" $(cat "$hash")"
    done < <(find "$folder" -maxdepth 3 -type f \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'unlicense*' \) \
        ! -name '*.rs' -size -200k -print0 | LC_ALL=C sort -z)
    echo "$crate | $licence | $repository${numbers:+ | text$numbers}"
done <"$work/crates"
cat "$work/texts"
