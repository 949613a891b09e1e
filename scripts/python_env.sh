#!/usr/bin/env bash
# scripts/python_env.sh BUILD_FOLDER    creates BUILD_FOLDER/venv with what the Python package needs: nanobind, numpy.
# Without a network or python3-venv it says so and succeeds: the package and its test are left out then.
set -euo pipefail

venv="${1:?usage: python_env.sh BUILD_FOLDER}/venv"
python="$venv/bin/python"
complete() { [[ -x $python ]] && "$python" -c 'import nanobind, numpy' 2>/dev/null; }
if complete; then exit 0; fi

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if python3 -m venv --system-site-packages "$venv" >"$log" 2>&1 &&
    "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 'nanobind>=2.4' numpy >>"$log" 2>&1 &&
    complete; then
    exit 0
fi
echo "python_env: no Python package and no test of it: $(tail -n 1 "$log")" >&2
