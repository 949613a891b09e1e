#!/usr/bin/env bash
# scripts/aarch64.sh BUILD_FOLDER    builds the runtime library for AArch64 with Debian's cross compiler in
# BUILD_FOLDER/aarch64, and runs models that BUILD_FOLDER/bin/tilewright compiles for it in qemu (scripts/aarch64_test.py).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$(cd "${1:?usage: aarch64.sh BUILD_FOLDER}" && pwd)"
folder="$build/aarch64"
mkdir -p "$folder/headers"

ln -sfn /usr/include/fmt "$folder/headers/fmt"
ln -sfn /usr/include/xxhash.h "$folder/headers/xxhash.h"

cmake -G Ninja -S "$root/cmake/aarch64" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
    -DTILEWRIGHT_HEADERS="$folder/headers" >"$folder/configure.log"
cmake --build "$folder/build"
python=python3
if [[ -x $build/venv/bin/python ]]; then python="$build/venv/bin/python"; fi
"$python" "$root/scripts/aarch64_test.py" --tool "$build/bin/tilewright" --runner "$folder/build/run_arrays"
