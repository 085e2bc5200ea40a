#!/usr/bin/env bash
# Builds the C library in `dist`: lib/libflowlane.so and .a, include/flowlane.h, lib/pkgconfig/flowlane.pc. `PREFIX=/usr/local
# bindings/c/build.sh` installs it there; LIBDIR is the library directory (default: PREFIX/lib), DESTDIR a staging directory for packages,
# TARGET a target triple, CARGO_TARGET_DIR the directory of builds (default: bindings/c/target). `--test` runs the tests, with sanitizers and valgrind if available. Requires Rust; for tests a C compiler.
set -euo pipefail
# Relative to where the script is called.
[ -z "${CARGO_TARGET_DIR-}" ] || CARGO_TARGET_DIR=$(realpath -m "$CARGO_TARGET_DIR")
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
cargo build --release --locked --quiet ${TARGET:+--target "$TARGET"}
built=$target/${TARGET:+$TARGET/}release
prefix=${PREFIX:-$PWD/dist}
libdir=${LIBDIR:-$prefix/lib}
version=$(sed -n 's/^version = "\(.*\)"/\1/p;T;q' Cargo.toml)
[ -n "${PREFIX-}" ] || rm -rf dist
lib=${DESTDIR-}$libdir include=${DESTDIR-}$prefix/include
mkdir -p "$lib/pkgconfig" "$include"
install -m 755 "$built/libflowlane_c.so" "$lib/libflowlane.so.$version"
ln -sf "libflowlane.so.$version" "$lib/libflowlane.so.1"
ln -sf libflowlane.so.1 "$lib/libflowlane.so"
install -m 644 "$built/libflowlane_c.a" "$lib/libflowlane.a"
install -m 644 include/flowlane.h "$include/flowlane.h"
cat >"$lib/pkgconfig/flowlane.pc" <<PC
prefix=$prefix
libdir=$libdir
includedir=\${prefix}/include
Name: flowlane
Description: Packet classification with SIMD
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lflowlane
Libs.private: -lpthread -ldl -lm
PC
[ "${1-}" = --test ] || exit 0

# The committed header must be up to date, and the library must export exactly the functions of its version.
git diff --exit-code --stat -- include/flowlane.h
nm -D --defined-only "$prefix/lib/libflowlane.so" | awk '$2 == "T" {print $3}' | LC_ALL=C sort | diff symbols.txt - ||
    { echo "the exported functions differ from symbols.txt; increment FL_ABI if one was removed or takes other arguments"; exit 1; }

flags=(-std=c11 -g -Wall -Wextra -Werror "-I$prefix/include")
shared=("-L$prefix/lib" -lflowlane "-Wl,-rpath,$prefix/lib" -lpthread)
tries=$target/tries
mkdir -p "$tries"
for program in test rules; do
    gcc "${flags[@]}" -O2 -DCOUNT_ALLOCATIONS "tests/$program.c" -o "$tries/$program" "${shared[@]}" && "$tries/$program"
    gcc "${flags[@]}" -O2 "tests/$program.c" -o "$tries/$program-static" "$prefix/lib/libflowlane.a" -lpthread -ldl -lm && "$tries/$program-static"
    gcc "${flags[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover "tests/$program.c" -o "$tries/$program-asan" "${shared[@]}" &&
        "$tries/$program-asan"
    if command -v valgrind >/dev/null; then
        # valgrind does not support AVX-512.
        FLOWLANE_MAX_SIMD=256 valgrind --quiet --error-exitcode=1 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
            "$tries/$program-static"
    else
        echo "skipped: valgrind is not installed"
    fi
done
# The programs in docs/c.md.
awk -v tries="$tries" '/^```c$/ {on = 1; n++; next} /^```$/ {on = 0} on {print > (tries "/page" n ".c")}' ../../docs/c.md
for page in 1 2 3 4; do gcc "${flags[@]}" "$tries/page$page.c" -o "$tries/page$page" "${shared[@]}"; done
[ "$("$tries/page1" && "$tries/page2" && "$tries/page3" && "$tries/page4")" = $'0 1\n0 2\nweb: table=0,priority=10,cookie=0x1,tcp,tp_dst=80,nw_dst=10.0.0.0/8 actions=drop\n0 1, 1 2\n1 1 0: 70 80\n1 1' ]
# The header must compile as C++.
echo '#include <flowlane.h>' | g++ -std=c++17 -Wall -Werror "-I$prefix/include" -x c++ -fsyntax-only -
gcc "${flags[@]}" -O2 examples/captures.c -o "$tries/captures" "${shared[@]}"
examples/try.sh "$tries/captures"
if pkg-config --exists libdpdk 2>/dev/null; then
    # shellcheck disable=SC2046
    gcc "${flags[@]}" -O2 $(pkg-config --cflags libdpdk) examples/dpdk_acl.c -o "$tries/dpdk_acl" "${shared[@]}" $(pkg-config --libs libdpdk)
    "$tries/dpdk_acl"
else
    echo "skipped: the DPDK example; DPDK is not installed (pkg-config libdpdk)"
fi
