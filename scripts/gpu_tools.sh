#!/usr/bin/env bash
# scripts/gpu_tools.sh BUILD_FOLDER    installs into BUILD_FOLDER/venv what tests of kernels for GPUs compare with, from
# Python packages: CUTLASS's headers and those of CUDA that they include (12 MB to download), NVRTC (90 MB), nvdisasm (5 MB).
# Versions are fixed: budgets of instructions depend on the assembler. Where a package cannot be had it says so and succeeds;
# the tests that need it are left out then.
set -euo pipefail

venv="${1:?usage: gpu_tools.sh BUILD_FOLDER}/venv"
packages=(nvidia-cutlass==4.2.0.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cuda-crt==13.0.88
    nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-nvdisasm==13.5.37)
stamp="$venv/gpu_tools"
if [[ "$(cat "$stamp" 2>/dev/null)" == "${packages[*]}" ]]; then exit 0; fi

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if [[ -x $venv/bin/python ]] || python3 -m venv --system-site-packages "$venv" >"$log" 2>&1; then
    if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 --no-deps \
        --no-compile "${packages[@]}" >"$log" 2>&1; then
        echo "${packages[*]}" >"$stamp"
        exit 0
    fi
fi
echo "gpu_tools: no comparison with CuTe and no machine code of GPUs in tests: $(tail -n 1 "$log")" >&2
