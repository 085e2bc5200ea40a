#!/usr/bin/env bash
# Builds a wheel for this machine in `dist`, in a virtual environment. `--test` installs and tests it with numpy, pyarrow, polars and
# pandas; `--test --engines` also with local clusters of Spark, Ray and Dask (FLOWLANE_ENGINES=spark: only that one). Spark requires
# Java; without it, its tests are skipped.
# Requires Rust, Python 3.10 or later with venv, and access to the package index.
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
        # An S3 server, and an S3 client.
        "${pip[@]}" install 'moto[server]' s3fs
    fi
    "$environment/bin/python" -m pytest --quiet -rs
fi
ls dist
