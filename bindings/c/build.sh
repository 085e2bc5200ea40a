#!/usr/bin/env bash
# The library for C in `dist`: lib/libflowlane.so and .a, include/flowlane.h, lib/pkgconfig/flowlane.pc. `PREFIX=/usr/local bindings/c/build.sh`
# installs it there; LIBDIR names the folder of libraries (default: PREFIX/lib), DESTDIR the folder that stands for / while a package is
# made, TARGET another machine's triple. With `--test` it is tried, with sanitizers and valgrind where they are there. Needs Rust; for the
# tests a C compiler.
set -euo pipefail
cd "$(dirname "$0")"
cargo build --release --locked --quiet ${TARGET:+--target "$TARGET"}
built=target/${TARGET:+$TARGET/}release
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
Description: Packet classification on every lane of a machine
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lflowlane
Libs.private: -lpthread -ldl -lm
PC
[ "${1-}" = --test ] || exit 0

# The header in the repository is that of the sources, and the library has the functions of its version, no others.
git diff --exit-code --stat -- include/flowlane.h
nm -D --defined-only "$prefix/lib/libflowlane.so" | awk '$2 == "T" {print $3}' | LC_ALL=C sort | diff symbols.txt - ||
    { echo "the functions of the library are not those of symbols.txt: where one is gone or takes other arguments, FL_ABI grows"; exit 1; }

flags=(-std=c11 -g -Wall -Wextra -Werror "-I$prefix/include")
shared=("-L$prefix/lib" -lflowlane "-Wl,-rpath,$prefix/lib" -lpthread)
gcc "${flags[@]}" -O2 -DCOUNT_ALLOCATIONS tests/test.c -o target/test "${shared[@]}" && target/test
gcc "${flags[@]}" -O2 tests/test.c -o target/test-static "$prefix/lib/libflowlane.a" -lpthread -ldl -lm && target/test-static
gcc "${flags[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover tests/test.c -o target/test-asan "${shared[@]}" && target/test-asan
if command -v valgrind >/dev/null; then
    # It knows no AVX-512.
    FLOWLANE_MAX_SIMD=256 valgrind --quiet --error-exitcode=1 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite target/test-static
else
    echo "skipped: valgrind, since there is none"
fi
# What the page shows, as it stands: each block is a program.
awk '/^```c$/ {on = 1; n++; next} /^```$/ {on = 0} on {print > ("target/page" n ".c")}' ../../docs/c.md
for page in 1 2 3; do gcc "${flags[@]}" "target/page$page.c" -o "target/page$page" "${shared[@]}"; done
[ "$(target/page1 && target/page2 && target/page3)" = $'0 1\n0 2\n0 1, 1 2\n1 1 0: 70 80\n1 1' ]
# C++ reads the header, too.
echo '#include <flowlane.h>' | g++ -std=c++17 -Wall -Werror "-I$prefix/include" -x c++ -fsyntax-only -
gcc "${flags[@]}" -O2 examples/captures.c -o target/captures "${shared[@]}"
examples/try.sh target/captures
if pkg-config --exists libdpdk 2>/dev/null; then
    # shellcheck disable=SC2046
    gcc "${flags[@]}" -O2 $(pkg-config --cflags libdpdk) examples/dpdk_acl.c -o target/dpdk_acl "${shared[@]}" $(pkg-config --libs libdpdk)
    target/dpdk_acl
else
    echo "skipped: the example for DPDK, since it is not here (pkg-config libdpdk)"
fi
