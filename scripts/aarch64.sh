#!/usr/bin/env bash
# scripts/aarch64.sh BUILD_FOLDER    builds the runtime library for AArch64 with Debian's cross compiler in
# BUILD_FOLDER/aarch64, and runs models that BUILD_FOLDER/bin/tilewright compiles for it in qemu (scripts/aarch64_test.py).
# LLVM's static library for AArch64, which has BLAKE3, is downloaded and not installed.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$(cd "${1:?usage: aarch64.sh BUILD_FOLDER}" && pwd)"
folder="$build/aarch64"
mkdir -p "$folder/headers"

if [[ ! -e $folder/llvm/usr/lib/llvm-19/lib/libLLVMSupport.a ]]; then
    # With package lists of its own: the system's list of architectures stays as it is.
    lists="$folder/lists"
    mkdir -p "$lists/partial"
    apt=(apt-get -q -o Dir::State::Lists="$lists" -o APT::Architectures::=amd64 -o APT::Architectures::=arm64
        -o Acquire::Retries=3)
    "${apt[@]}" update
    (cd "$folder" && "${apt[@]}" download llvm-19-dev:arm64)
    dpkg-deb -x "$folder"/llvm-19-dev_*_arm64.deb "$folder/llvm"
    rm "$folder"/llvm-19-dev_*_arm64.deb
fi
ln -sfn /usr/include/fmt "$folder/headers/fmt"
ln -sfn /usr/lib/llvm-19/include/llvm-c "$folder/headers/llvm-c"

cmake -G Ninja -S "$root/cmake/aarch64" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
    -DTILEWRIGHT_HEADERS="$folder/headers" \
    -DTILEWRIGHT_BLAKE3="$folder/llvm/usr/lib/llvm-19/lib/libLLVMSupport.a" >"$folder/configure.log"
cmake --build "$folder/build"
python=python3
if [[ -x $build/venv/bin/python ]]; then python="$build/venv/bin/python"; fi
"$python" "$root/scripts/aarch64_test.py" --tool "$build/bin/tilewright" --runner "$folder/build/run_arrays"
