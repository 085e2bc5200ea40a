#!/usr/bin/env bash
# The version, on standard output: it is said once, in the workspace's Cargo.toml; ends with an error where a binding, which is outside
# the workspace, has another. `packaging/version.sh 0.2.0` gives all of them, and their lock files, that one.
set -euo pipefail
cd "$(dirname "$0")/.."
# The first version of a package in each is its own; what cargo-c installs has none.
said() {
    sed -n '/^\[\(workspace\.\)\?package\]/,/^\[[a-z]*\]$/s/^version = "\(.*\)"$/\1/p' "$1" | head -n 1
}
bindings=(bindings/c bindings/python)
if [ $# -gt 0 ]; then
    [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+\.[0-9]+)?$ ]] || { echo "version.sh: \`$1\` is no version: 0.2.0 or 0.2.0-rc.1 is" >&2 && exit 1; }
    old=$(said Cargo.toml)
    sed -i "0,/^version = \"$old\"\$/s//version = \"$1\"/" Cargo.toml "${bindings[@]/%//Cargo.toml}"
    for folder in . "${bindings[@]}" fuzz; do cargo update --quiet --offline --workspace --manifest-path "$folder/Cargo.toml"; done
fi
version=$(said Cargo.toml)
for folder in "${bindings[@]}"; do
    other=$(said "$folder/Cargo.toml")
    if [ "$other" != "$version" ]; then
        echo "version.sh: $folder/Cargo.toml says $other, Cargo.toml says $version; packaging/version.sh $version makes them equal" >&2
        exit 1
    fi
done
echo "$version"
