#!/usr/bin/env bash
# scripts/peers_env.sh BUILD_FOLDER    adds to BUILD_FOLDER/venv what the papers' tables of models compare with: onnxruntime,
# which also checks results, onnx and OpenVINO. Without OpenVINO the tables have a column less.
set -euo pipefail

python="${1:?usage: peers_env.sh BUILD_FOLDER}/venv/bin/python"
has() { "$python" -c "import $1" 2>/dev/null; }
install() { "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 60 "$@"; }

[[ -x $python ]] || "$(dirname "${BASH_SOURCE[0]}")/python_env.sh" "$1"
has numpy,onnx,onnxruntime || install numpy 'onnx>=1.17' 'onnxruntime>=1.23' || {
    echo "peers_env: the papers' tables need numpy, onnx and onnxruntime in $python" >&2
    exit 1
}
has openvino || install 'openvino>=2025.3' || echo "peers_env: going on without OpenVINO" >&2
