#!/usr/bin/env bash
# Builds and tests Flowlane's packages: `packaging/build.sh --help`. Their contents and the release process: docs/releasing.md.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: packaging/build.sh [OPTION].. [PACKAGE]..

Builds the given packages (default: wheel, deb, image, cargo) into dist/:
  wheel    Python wheel for Linux with glibc 2.17 or later (manylinux2014); requires Python 3.10 with venv, and the package index
  deb      Debian and Ubuntu package: command, C library, manual pages, completions, services; requires gcc, binutils, dpkg
  image    container image of the command, as an archive; requires docker, podman or buildah
  cargo    produces no file: tests `cargo install` into an empty directory
  root     the files of the image, as a directory

  --test            install each package into a directory and test it, for another architecture with qemu-aarch64
  --target TRIPLE   build for aarch64-unknown-linux-gnu; requires gcc-aarch64-linux-gnu and qemu-user-static, which runs the
                    command to generate its manual pages
  --features LIST   features of the command (default: query; '' for none)
  --profile NAME    build profile of the command (default: dist)
  --quick           as .ci/run does: test the outputs of `cargo build --release -p flowlane-cli`, bindings/python/build.sh and
                    bindings/c/build.sh; skip packages whose tools are missing, with a message; keep no files
  --out DIR         output directory (default: dist)
TEXT
}

die() {
    echo "packaging/build.sh: $*" >&2
    exit 1
}

quick='' try='' features=query profile=dist out='' packages=()
host=$(rustc -vV | sed -n 's/^host: //p')
target=$host
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage && exit ;;
        --test) try=1 ;;
        --quick) quick=1 try=1 features='' profile=release ;;
        --target | --features | --profile | --out)
            [ $# -gt 1 ] || die "$1 needs a value; see --help"
            printf -v "${1#--}" %s "$2"
            shift
            ;;
        wheel | deb | image | cargo | root) packages+=("$1") ;;
        *) die "\`$1\` is neither an option nor a package; see --help" ;;
    esac
    shift
done
[ ${#packages[@]} -gt 0 ] || packages=(wheel deb image cargo)

# The target's Debian architecture, multiarch directory, and emulator.
case $target in
    x86_64-unknown-linux-gnu) debian=amd64 multiarch=x86_64-linux-gnu emulator=qemu-x86_64 ;;
    aarch64-unknown-linux-gnu) debian=arm64 multiarch=aarch64-linux-gnu emulator=qemu-aarch64 ;;
    *) die "unsupported target $target; supported targets are listed here" ;;
esac
version=$(packaging/version.sh)
# Pre-releases sort before the release in Debian.
deb_version=${version/-/"~"}-1
work=$(mktemp -d)
# Also remove container state outside of the directory.
remove=()
trap '"${remove[@]}" >/dev/null 2>&1 || true; rm -rf "$work" bindings/python/LICENSE-*' EXIT
# --quick keeps no files, unless --out is given.
out=${out:-${quick:+$work/}dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
maintainer=${FLOWLANE_MAINTAINER:-The Flowlane developers <flowlane@example.org>}
# Reproducible packages: timestamps are those of the last commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# Tools to compile, strip and run programs for the target.
run=() strip=strip cross='' cc=${CC:-gcc}
if [ "$target" != "$host" ]; then
    cross=$target cc=$multiarch-gcc strip=$multiarch-strip
    upper=${target^^} upper=${upper//-/_}
    export "CARGO_TARGET_${upper}_LINKER=$cc" "CC_${target//-/_}=$cc"
    emulator=$(command -v "$emulator-static" "$emulator" | head -n 1) || true
    [ -z "$emulator" ] || run=("$emulator" -L "/usr/$multiarch")
fi

# Checks that PROGRAM, from the given Debian package, is available for PACKAGE; otherwise skips PACKAGE (--quick) or fails.
needs() {
    command -v "$2" >/dev/null && return
    [ -n "$quick" ] || die "$1 needs $2 (apt-get install $3)"
    echo "skipped: package $1; $2 is not installed (apt-get install $3)"
    return 1
}
needs_emulator() {
    [ -z "$cross" ] || [ ${#run[@]} -gt 0 ] || die "$1 needs qemu-aarch64 (apt-get install qemu-user-static)"
}

# The command, compiled once for all packages. Stripped binaries need no line tables.
build_command() {
    [ -z "${command-}" ] || return 0
    CARGO_PROFILE_DIST_DEBUG=false CARGO_PROFILE_DIST_STRIP=symbols cargo build --locked --quiet --package flowlane-cli \
        --profile "$profile" --features "$features" ${cross:+--target "$cross"}
    command=${CARGO_TARGET_DIR:-target}/${cross:+$cross/}$profile/flowlane
}

# Third-party licences of the command.
licences() {
    packaging/licences.sh "$target" crates/flowlane-cli/Cargo.toml --features "$features"
}

make_wheel() {
    needs wheel python3 python3-venv || return 0
    [ -z "$cross" ] || [ -z "$try" ] || { needs wheel mmdebstrap mmdebstrap && needs_emulator wheel; }
    local built=$work/wheel
    if [ -n "$quick" ]; then
        built=$PWD/bindings/python/dist
        compgen -G "$built/flowlane-*.whl" >/dev/null || {
            echo "skipped: package wheel; bindings/python/build.sh has not been run"
            return 0
        }
    else
        python3 -m venv "$work/maturin"
        "$work/maturin/bin/python" -m pip --disable-pip-version-check --quiet install 'maturin>=1.9,<2' 'ziglang>=0.13,<0.16'
        # Files of this name become part of the wheel.
        cp LICENSE-MIT LICENSE-APACHE bindings/python/
        packaging/licences.sh "$target" bindings/python/Cargo.toml >bindings/python/LICENSE-THIRD-PARTY
        # Zig links against glibc 2.17, and maturin rejects wheels that require newer versions. A configured linker would take
        # precedence.
        local named=()
        [ -z "$cross" ] || named=(-u "CARGO_TARGET_${upper}_LINKER" -u "CC_${target//-/_}")
        (cd bindings/python && env "${named[@]}" PATH="$work/maturin/bin:$PATH" maturin build --release --locked --quiet --zig \
            --target "$target" --compatibility manylinux2014 --out "$built")
        cp "$built"/flowlane-*.whl "$out/"
    fi
    [ -z "$try" ] || try_wheel "$built"/flowlane-*.whl
}

# Installs the wheel into an empty environment and tests it. With --quick its tests have run before.
try_wheel() {
    local python=("$work/venv/bin/python") tools=(hypothesis pandas polars pyarrow pytest)
    [ -z "$quick" ] || tools=()
    python3 -m venv "$work/venv"
    if [ -n "$cross" ]; then
        # Debian's Python for the target, unpacked; only the interpreter is run.
        mmdebstrap --quiet --variant=extract --architectures="$debian" --include=python3,libstdc++6 bookworm "$work/python" >/dev/null
        "${python[@]}" -m pip --disable-pip-version-check --quiet install --target "$work/site" --only-binary :all: \
            --python-version 3.11 --platform "manylinux_2_28_${target%%-*}" --platform "manylinux2014_${target%%-*}" "$1" "${tools[@]}"
        export PYTHONPATH=$work/site
        python=("$emulator" -L "$work/python" "$work/python/usr/bin/python3.11")
    else
        "${python[@]}" -m pip --disable-pip-version-check --quiet install "$1" "${tools[@]}"
    fi
    (
        cd "$work"
        "${python[@]}" - "$version" <<'PYTHON'
import sys

import flowlane
import numpy as np

assert flowlane.__version__.replace("rc", "-rc.") == sys.argv[1], flowlane.__version__
acl = flowlane.Classifier.from_rules("tcp,nw_dst=10.0.0.0/8,tp_dst=22,actions=drop\nip,actions=output:1")
packets = {"nw_dst": np.array([0x0A000001, 0x0B000001], "u4"), "nw_proto": 6, "tp_dst": 22}
assert acl.classify(packets).tolist() == [0, 1]
PYTHON
    )
    [ ${#tools[@]} -eq 0 ] || (cd bindings/python && PYTHONDONTWRITEBYTECODE=1 "${python[@]}" -m pytest --quiet -p no:cacheprovider)
    echo "wheel tested: $(basename "$1")"
}

# Debian packages that a program or library for the target depends on.
depends() {
    local file name
    for file; do
        for name in $(LC_ALL=C readelf --dynamic "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            case $name in
                libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;;
                libgcc_s.so.1) echo "libgcc-s1 (>= 4.2)" ;;
                *) die "$file needs $name; say here which package has it" ;;
            esac
        done
        LC_ALL=C readelf --version-info "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_\(.*\)/libc6 (>= \1)/'
    done | sort -Vu | awk '{last[$1] = $0} END {for (name in last) print last[name]}' | sort | paste -sd, | sed 's/,/, /g'
}

make_deb() {
    needs deb "$cc" "gcc${cross:+-$multiarch}" && needs deb readelf binutils && needs deb dpkg-deb dpkg || return 0
    needs_emulator deb
    if [ -n "$quick" ] && [ ! -e "${CARGO_TARGET_DIR:-bindings/c/target}/release/libflowlane_c.so" ]; then
        echo "skipped: package deb; bindings/c/build.sh has not been run"
        return 0
    fi
    build_command
    local root=$work/deb name share doc needed
    name=flowlane_${deb_version}_$debian.deb share=$root/usr/share doc=$root/usr/share/doc/flowlane
    install -D -m 755 "$command" "$root/usr/bin/flowlane"
    TARGET=$cross DESTDIR=$root PREFIX=/usr LIBDIR=/usr/lib/$multiarch bindings/c/build.sh
    chmod 644 "$root/usr/lib/$multiarch"/libflowlane.so.*.*
    "$strip" --strip-unneeded "$root/usr/bin/flowlane" "$root/usr/lib/$multiarch"/libflowlane.so.*.*
    "$strip" --strip-debug --enable-deterministic-archives "$root/usr/lib/$multiarch/libflowlane.a"
    # The command generates its manual pages and completions.
    "${run[@]}" "$root/usr/bin/flowlane" man "$share/man/man1"
    gzip -9n "$share"/man/man1/*
    mkdir -p "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
    "${run[@]}" "$root/usr/bin/flowlane" completions bash >"$share/bash-completion/completions/flowlane"
    "${run[@]}" "$root/usr/bin/flowlane" completions zsh >"$share/zsh/vendor-completions/_flowlane"
    "${run[@]}" "$root/usr/bin/flowlane" completions fish >"$share/fish/vendor_completions.d/flowlane.fish"
    # Services: neither enabled nor started.
    install -D -m 644 -t "$root/lib/systemd/system" packaging/systemd/*.service
    install -D -m 644 packaging/systemd/sysusers.conf "$root/usr/lib/sysusers.d/flowlane.conf"
    install -D -m 644 -t "$root/etc/flowlane" packaging/systemd/flowlane.toml
    # Documentation and examples.
    mkdir -p "$doc/examples/c"
    install -D -m 644 -t "$doc/examples/systemd" packaging/systemd/*.conf
    rm "$doc/examples/systemd/sysusers.conf"
    cp docs/operation.md "$doc/"
    cp examples/*.toml examples/*.flows examples/*.pcap examples/README.md "$doc/examples/"
    cp bindings/c/examples/*.c "$doc/examples/c/"
    cp README.md "$doc/"
    install -m 644 packaging/copyright "$doc/copyright"
    install -D -m 644 packaging/lintian-overrides "$share/lintian/overrides/flowlane"
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
    printf 'flowlane (%s) unstable; urgency=medium\n\n  * Version %s: see changelog.gz.\n\n -- %s  %s\n' \
        "$deb_version" "$version" "$maintainer" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.Debian.gz"
    { licences && echo && echo "C library:" && echo && packaging/licences.sh "$target" bindings/c/Cargo.toml; } |
        gzip -9n >"$doc/third-party.gz"
    # Debian metadata.
    needed=$(depends "$root/usr/bin/flowlane" "$root/usr/lib/$multiarch"/libflowlane.so.*.*)
    mkdir "$root/DEBIAN"
    sed -e "s/@VERSION@/$deb_version/" -e "s/@ARCHITECTURE@/$debian/" -e "s/@MAINTAINER@/$maintainer/" \
        -e "s/@SIZE@/$(du -skc "$root"/{usr,lib,etc} | tail -n 1 | cut -f1)/" \
        -e "s/@DEPENDS@/$needed/" \
        packaging/control >"$root/DEBIAN/control"
    echo "libflowlane 1 flowlane (>= ${deb_version%-1})" >"$root/DEBIAN/shlibs"
    echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
    (cd "$root/etc" && find . -type f -printf '/etc/%P\n' | LC_ALL=C sort) >"$root/DEBIAN/conffiles"
    install -m 755 packaging/systemd/{postinst,prerm,postrm} "$root/DEBIAN/"
    (cd "$root" && find usr lib -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$root" -type d -exec chmod 755 {} +
    # Test packages need not be small.
    dpkg-deb --root-owner-group ${quick:+-Zgzip -z1} --build "$root" "$out/$name" >/dev/null
    rm -r "$root"
    [ -z "$try" ] || try_deb "$out/$name"
}

# Unpacks the package and tests its contents.
try_deb() {
    local root=$work/unpacked lib got
    dpkg -x "$1" "$root"
    lib=$root/usr/lib/$multiarch
    got=$("${run[@]}" "$root/usr/bin/flowlane" --version)
    [ "$got" = "flowlane $version" ] || die "the command of $1 says \`$got\`"
    "${run[@]}" "$root/usr/bin/flowlane" switch run "$root/usr/share/doc/flowlane/examples/quickstart.toml" >/dev/null
    zcat "$root/usr/share/man/man1/flowlane.1.gz" | grep -q '^\.TH flowlane'
    try_services "$1" "$root"
    bash -n "$root/usr/share/bash-completion/completions/flowlane"
    if ! command -v pkg-config >/dev/null || ! command -v xxd >/dev/null; then
        echo "skipped: C programs against the package; pkg-config or xxd is not installed (apt-get install pkg-config xxd)"
    else
        # As installed: only files of the package, found through its pkg-config file.
        export PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
        export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
        local flags example=$root/usr/share/doc/flowlane/examples/c/captures.c
        [ "$(pkg-config --modversion flowlane)" = "$version" ]
        read -ra flags <<<"$(pkg-config --cflags --libs flowlane)"
        "$cc" -o "$work/captures" "$example" "${flags[@]}"
        read -ra flags <<<"$(pkg-config --cflags flowlane) $lib/libflowlane.a $(pkg-config --static --libs-only-l flowlane | sed 's/-lflowlane//')"
        "$cc" -o "$work/captures-static" "$example" "${flags[@]}"
        # The dynamic linker finds the library by its soname, as in /usr/lib.
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$lib" "${run[*]} $work/captures" >"$work/try-shared"
        printf '#!/bin/sh\nexec %s "$@"\n' "${run[*]} $work/captures-static" >"$work/try-static"
        chmod +x "$work"/try-{shared,static}
        bindings/c/examples/try.sh "$work/try-shared" && bindings/c/examples/try.sh "$work/try-static"
    fi
    rm -r "$root"
    echo "deb tested: $(basename "$1")"
}

# Tests the services of an unpacked package.
try_services() { # PACKAGE ROOT
    local file script
    for file in lib/systemd/system/flowlane-{switch,vswitchd}.service usr/lib/sysusers.d/flowlane.conf etc/flowlane/flowlane.toml \
        usr/share/doc/flowlane/operation.md usr/share/doc/flowlane/examples/systemd/afxdp.conf; do
        [ -s "$2/$file" ] || die "$1 lacks /$file"
    done
    mkdir "$work/metadata"
    dpkg -e "$1" "$work/metadata"
    grep -qx /etc/flowlane/flowlane.toml "$work/metadata/conffiles" || die "/etc/flowlane/flowlane.toml is not a conffile of $1"
    for script in postinst prerm postrm; do
        [ -x "$work/metadata/$script" ] && sh -n "$work/metadata/$script" || die "$script of $1 does not run"
    done
    rm -r "$work/metadata"
    "${run[@]}" "$2/usr/bin/flowlane" switch check "$2/etc/flowlane/flowlane.toml" >/dev/null
    # Removing or installing the package enables nothing: that is the operator's.
    [ ! -e "$2/etc/systemd" ] || die "$1 enables a unit"
    if command -v systemd-analyze >/dev/null; then
        local unit complaints
        mkdir "$work/units"
        for unit in flowlane-{switch,vswitchd}.service; do
            # With the unpacked command, and without the database's unit, which is another package's.
            sed -e "s#/usr/bin/flowlane#$2/usr/bin/flowlane#" -e '/^Requires=ovsdb-server/d' "$2/lib/systemd/system/$unit" >"$work/units/$unit"
            # Other units of this machine may have mistakes of their own.
            complaints=$(systemd-analyze verify --man=no "$work/units/$unit" 2>&1 | grep -F flowlane || true)
            [ -z "$complaints" ] || die "a unit of $1: $complaints"
        done
        rm -r "$work/units"
    else
        echo "skipped: systemd-analyze verify; systemd is not installed (apt-get install systemd)"
    fi
}

# Collects the image's files in a directory: the command and its shared libraries, in the default search path of the linker.
image_files() {
    build_command
    local root=$1 loader name
    mkdir -p "$root/usr/lib" "$root/etc" "$root/work"
    install -d -m 1777 "$root/tmp"
    ln -s usr/lib "$root/lib"
    ln -s usr/lib "$root/lib64"
    install -D -m 755 "$command" "$root/usr/bin/flowlane"
    "$strip" --strip-unneeded "$root/usr/bin/flowlane"
    loader=$(LC_ALL=C readelf --program-headers "$command" | sed -n 's/.*interpreter: .*\/\(.*\)\]/\1/p')
    for name in "$loader" $(LC_ALL=C readelf --dynamic "$command" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        install -m 755 "$("$cc" -print-file-name="$name")" "$root/usr/lib/$name"
    done
    echo 'flowlane:x:65532:65532::/work:/usr/bin/flowlane' >"$root/etc/passwd"
    echo 'flowlane:x:65532:' >"$root/etc/group"
    chown 65532:65532 "$root/work" 2>/dev/null || chmod 1777 "$root/work"
    install -D -m 644 -t "$root/usr/share/doc/flowlane" LICENSE-MIT LICENSE-APACHE
    licences >"$root/usr/share/doc/flowlane/third-party"
    for name in libc6{,"-$debian-cross"} libgcc-s1{,"-$debian-cross"}; do
        [ ! -e "/usr/share/doc/$name/copyright" ] || install -D -m 644 {,"$root"}"/usr/share/doc/$name/copyright"
    done
}

make_root() {
    needs root "$cc" "gcc${cross:+-$multiarch}" && needs root readelf binutils || return 0
    rm -rf "$out/root"
    image_files "$out/root"
}

# Returns an available image builder.
image_builder() {
    if docker version >/dev/null 2>&1 && docker buildx version >/dev/null 2>&1; then
        echo docker
    else
        basename "$(command -v buildah || command -v podman)"
    fi
}

make_image() {
    needs image "$cc" "gcc${cross:+-$multiarch}" && needs image readelf binutils || return 0
    [ -z "$try" ] || needs_emulator image
    local builder name=flowlane:$version file=$out/flowlane-$version-$debian.image.tar root=$work/build/out/root
    builder=$(image_builder)
    [ -n "$builder$quick" ] || die "image needs docker with buildx and its daemon, podman or buildah (apt-get install buildah)"
    image_files "$root"
    [ -z "$try" ] || try_root "$root"
    if [ -z "$builder" ]; then
        echo "skipped: package image; no docker with buildx and a daemon, no podman and no buildah; testing its files instead"
        return 0
    fi
    # The directory built above replaces the Dockerfile's first stage.
    local build save
    case $builder in
        docker)
            build=(docker buildx build --load) save=(docker save --output "$file" "$name") remove=(docker image rm "$name")
            ;;
        podman)
            build=(podman build --layers=false --timestamp "$SOURCE_DATE_EPOCH") save=(podman push "$name" "docker-archive:$file:$name") remove=(podman image rm "$name")
            ;;
        buildah)
            # With its own storage, and without further namespaces.
            local buildah=(buildah --root "$work/images" --runroot "$work/images-run" --storage-driver vfs)
            build=("${buildah[@]}" build --isolation chroot --timestamp "$SOURCE_DATE_EPOCH") save=("${buildah[@]}" push "$name" "docker-archive:$file:$name")
            remove=("${buildah[@]}" rmi "$name")
            ;;
    esac
    mkdir "$work/empty"
    rm -f "$file"
    "${build[@]}" --quiet --file packaging/Dockerfile --target flowlane --platform "linux/$debian" --build-context "build=$work/build" \
        --build-arg "VERSION=$version" --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
        --tag "$name" "$work/empty" >"$work/build.log" 2>&1 || { cat "$work/build.log" && exit 1; }
    # For another architecture, only the files were tested above.
    if [ -n "$try" ] && [ -z "$cross" ]; then
        if [ "$builder" = buildah ]; then
            try_image buildah_run
        else
            try_image "$builder" run --rm --volume "$work/examples:/work"
        fi
    fi
    "${save[@]}" >"$work/save.log" 2>&1 || { cat "$work/save.log" && exit 1; }
    "${remove[@]}" >/dev/null
    remove=()
    rm -rf "$work/build" "$work/empty"
    echo "image built with $builder: $(basename "$file")"
}

# Like `docker run`: buildah creates a container first.
buildah_run() {
    local container got
    container=$("${buildah[@]}" from "$1")
    "${buildah[@]}" run --isolation chroot --volume "$work/examples:/work" "$container" -- /usr/bin/flowlane "${@:2}"
    "${buildah[@]}" rm "$container" >/dev/null
}

try_image() { # command that runs the image
    local got code=0
    # The image's user does not exist on the host; give it a writable directory.
    cp -r examples "$work/examples"
    chmod -R a+rwX "$work/examples"
    got=$("$@" "$name" --version 2>"$work/run.log") || code=$?
    # This exit code is that of the container runtime, not of the command.
    if [ $code = 125 ] || [ $code = 126 ]; then
        echo "skipped: running the image; $builder cannot run containers here ($(tail -n 1 "$work/run.log")); testing its files instead"
        return 0
    fi
    [ "$got" = "flowlane $version" ] || die "the command of the image says \`$got\`"
    "$@" "$name" switch run quickstart.toml >/dev/null
    compgen -G "$work/examples/out/*.pcap" >/dev/null || die "the image's switch wrote no captures"
    rm -rf "$work/examples"
}

# Tests that the image's files are sufficient for the command.
try_root() {
    local got loader
    loader=$(compgen -G "$1/usr/lib/ld-linux*")
    if [ -n "$cross" ]; then
        got=$("$emulator" -L "$1" "$1/usr/bin/flowlane" --version)
    elif [ "$(id -u)" = 0 ]; then
        got=$(chroot --userspec 65532:65532 "$1" /usr/bin/flowlane --version)
    else
        got=$("$loader" --library-path "$1/usr/lib" "$1/usr/bin/flowlane" --version)
    fi
    [ "$got" = "flowlane $version" ] || die "the command of the image's files says \`$got\`"
    echo "image files tested: $(du -sh "$1" | cut -f1)"
}

make_cargo() {
    if [ -n "$cross" ]; then
        echo "skipped: package cargo; not applicable to another architecture"
        return 0
    fi
    local log=$work/install.log got
    CARGO_PROFILE_DIST_DEBUG=false CARGO_PROFILE_DIST_STRIP=symbols CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target} \
        cargo install --locked --path crates/flowlane-cli --profile "$profile" --features "$features" --root "$work/cargo" \
        >"$log" 2>&1 || { cat "$log" && exit 1; }
    # --quick tests the existing build.
    if [ -n "$quick" ] && grep ' Compiling ' "$log"; then
        die "cargo install compiled again what \`cargo build --release -p flowlane-cli\` had built, or it has not been built"
    fi
    got=$("$work/cargo/bin/flowlane" --version)
    [ "$got" = "flowlane $version" ] || die "the command that cargo installed says \`$got\`"
    echo "cargo install tested"
}

for package in "${packages[@]}"; do "make_$package"; done
if [ -z "$quick" ]; then (cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -r sha256sum | tee SHA256SUMS); fi
