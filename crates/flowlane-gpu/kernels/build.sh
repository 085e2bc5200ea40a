#!/usr/bin/env bash
# Compiles the kernels into flowlane.fatbin, and says in manifest.txt from what and how. The compiler comes as wheels, of
# the versions below; nothing of CUDA needs to be installed, and no GPU.
#
#   kernels/build.sh          compile, and replace both files
#   kernels/build.sh --check  compile, and fail unless the same bits come out
set -euo pipefail
cd "$(dirname "$0")"

VERSION=13.0.88
FLAGS=(-std=c++17 -O3 --fatbin -gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80)
SOURCES=(bloom.cu ceilings.cu class_table.cuh device.cuh filtered.cu flowlane.cu linear.cu pruned.cu tuple.cu tuple_table.cuh vector.cu)

tools=${FLOWLANE_NVCC:-${CARGO_TARGET_DIR:-../../../target}/nvcc-$VERSION}
if [ ! -x "$tools/bin/python" ]; then
    python3 -m venv "$tools"
fi
"$tools/bin/pip" install --quiet --disable-pip-version-check nvidia-cuda-nvcc==$VERSION nvidia-cuda-crt==$VERSION \
    nvidia-nvvm==$VERSION nvidia-cuda-runtime==13.0.96
nvcc=$(find "$tools" -path '*/bin/nvcc' -print -quit)

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$nvcc" "${FLAGS[@]}" -o "$out/flowlane.fatbin" flowlane.cu
{
    echo "compiler: nvcc $VERSION"
    echo "flags: ${FLAGS[*]}"
    sha256sum "${SOURCES[@]}"
    (cd "$out" && sha256sum flowlane.fatbin)
} >"$out/manifest.txt"

if [ "${1:-}" = --check ]; then
    cmp "$out/flowlane.fatbin" flowlane.fatbin
    cmp "$out/manifest.txt" manifest.txt
    echo "the compiled kernels are those of the sources, bit for bit"
else
    cp "$out/flowlane.fatbin" "$out/manifest.txt" .
fi
