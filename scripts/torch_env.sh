#!/usr/bin/env bash
# scripts/torch_env.sh BUILD_FOLDER    creates BUILD_FOLDER/torch: PyTorch for the tests and the benchmark of
# tilewright.torch, with the Python of BUILD_FOLDER/venv, about 2 GB. The package index has builds of torch for CUDA alone.
# They start without a GPU, but not without the libraries that they are linked with: those that the system lacks are
# installed, first the small ones.
set -euo pipefail

build="${1:?usage: torch_env.sh BUILD_FOLDER}"
venv="$build/torch"
python="$venv/bin/python"
works() { [[ -x $python ]] && "$python" -c 'import torch, numpy' 2>/dev/null; }
if works; then exit 0; fi

"$build/venv/bin/python" -m venv "$venv"
install() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }
install numpy filelock 'typing-extensions>=4.13' 'setuptools>=77.0.3' 'sympy>=1.13.3' networkx jinja2 fsspec
install --no-deps torch
works || install --no-deps nvidia-cufile nvidia-cusparselt-cu13 nvidia-nvshmem-cu13 nvidia-nccl-cu13
works || install torch
works
