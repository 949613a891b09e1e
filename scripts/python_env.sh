#!/usr/bin/env bash
# scripts/python_env.sh BUILD_FOLDER    creates BUILD_FOLDER/venv with what the Python package needs: nanobind, numpy; and
# with ONNX Runtime, which its tests compare with and run the execution provider in; under CI also with Ray and Dask.
# Without a network or python3-venv it says so and succeeds: the package and its test, or those tests, are left out then.
set -euo pipefail

venv="${1:?usage: python_env.sh BUILD_FOLDER}/venv"
python="$venv/bin/python"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
has() { [[ -x $python ]] && "$python" -c "import $1" 2>/dev/null; }
install() { "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 "$@" >>"$log" 2>&1; }

if ! has nanobind,numpy; then
    if ! python3 -m venv --system-site-packages "$venv" >"$log" 2>&1 || ! install 'nanobind>=2.4' numpy || ! has nanobind,numpy; then
        echo "python_env: no Python package and no test of it: $(tail -n 1 "$log")" >&2
        exit 0
    fi
fi
# Tried once: the file says that it was.
if ! has onnxruntime && [[ ! -e $venv/no_onnxruntime ]]; then
    if ! install 'onnxruntime>=1.23'; then
        touch "$venv/no_onnxruntime"
        echo "python_env: no tests with ONNX Runtime ($venv/no_onnxruntime): $(tail -n 1 "$log")" >&2
    fi
fi
# What spreads a tuning over machines: large, and only tests use it here.
if [[ -n ${CI:-} ]] && ! has ray,distributed && [[ ! -e $venv/no_cluster ]]; then
    if ! install 'ray>=2.9' distributed; then
        touch "$venv/no_cluster"
        echo "python_env: no tests with Ray and Dask ($venv/no_cluster): $(tail -n 1 "$log")" >&2
    fi
fi
