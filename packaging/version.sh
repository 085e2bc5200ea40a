#!/usr/bin/env bash
# Prints the version of the workspace's Cargo.toml; fails if a binding, which is outside the workspace, has another version.
# `packaging/version.sh 0.2.0` sets this version everywhere, including lock files.
set -euo pipefail
cd "$(dirname "$0")/.."
# The first version in a package section is the crate's; the section of cargo-c comes later.
version_of() {
    sed -n '/^\[\(workspace\.\)\?package\]/,/^\[[a-z]*\]$/s/^version = "\(.*\)"$/\1/p' "$1" | head -n 1
}
bindings=(bindings/c bindings/python)
if [ $# -gt 0 ]; then
    [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+\.[0-9]+)?$ ]] || { echo "version.sh: \`$1\` is not a version; examples: 0.2.0, 0.2.0-rc.1" >&2 && exit 1; }
    old=$(version_of Cargo.toml)
    sed -i "0,/^version = \"$old\"\$/s//version = \"$1\"/" Cargo.toml "${bindings[@]/%//Cargo.toml}"
    # Crates that are published need exactly this version of each other.
    sed -i "s/version = \"=$old\"/version = \"=$1\"/" Cargo.toml
    for folder in . "${bindings[@]}" fuzz; do cargo update --quiet --offline --workspace --manifest-path "$folder/Cargo.toml"; done
fi
version=$(version_of Cargo.toml)
for folder in "${bindings[@]}"; do
    other=$(version_of "$folder/Cargo.toml")
    if [ "$other" != "$version" ]; then
        echo "version.sh: $folder/Cargo.toml has version $other, Cargo.toml $version; run packaging/version.sh $version" >&2
        exit 1
    fi
done
echo "$version"
