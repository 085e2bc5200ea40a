#!/usr/bin/env bash
# A wheel for this machine in `dist`, in an environment of its own; with `--test` installed there and tried, with numpy, pyarrow, polars, pandas.
# `--test --engines`: with Spark, Ray and Dask, too, on clusters of this machine; FLOWLANE_ENGINES=spark with that one alone. Spark needs Java;
# without it its tests are skipped.
# Needs Rust, Python 3.10 or later with venv, and the package index.
set -euo pipefail
cd "$(dirname "$0")"
environment=${FLOWLANE_PYTHON_ENV:-target/venv}
python3 -m venv "$environment"
pip=("$environment/bin/python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" install 'maturin>=1.9,<2'
rm -rf dist
"$environment/bin/maturin" build --release --locked --quiet --out dist
if [ "${1-}" = --test ]; then
    "${pip[@]}" install --force-reinstall --no-deps dist/flowlane-*.whl
    "${pip[@]}" install hypothesis numpy pandas polars pyarrow pytest
    if [ "${2-}" = --engines ]; then
        "${pip[@]}" install "$(ls "$PWD"/dist/flowlane-*.whl)[${FLOWLANE_ENGINES:-spark,ray,dask}]"
        # What speaks as S3 does, and what reads from there.
        "${pip[@]}" install 'moto[server]' s3fs
    fi
    "$environment/bin/python" -m pytest --quiet -rs
fi
ls dist
