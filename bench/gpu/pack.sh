#!/bin/bash
# Packs the programs of bench/gpu/run.sh with their shared libraries, for a GPU machine on which nothing can be installed
# or built:
#
#     bench/gpu/pack.sh programs.tar.xz [FOLDER of built programs]
#
# and there, in the same sources:
#
#     mkdir -p build/packed && tar xf programs.tar.xz -C build/packed
#     TILEWRIGHT_BIN=build/packed/bin bench/gpu/run.sh
#
# The C library, the C++ library and the loader are those of the other machine, which must not be older. NVRTC, cuBLASLt
# and cuDNN are found there, in torch's packages or the toolkit. Without a folder the programs are built first. The pack
# should have 15 MB, as much as is easily carried; more than 40 are an error (the test gpu_pack, which compresses less:
# TILEWRIGHT_PACK_LEVEL, 6 unless set, is xz's).
set -euo pipefail
out=$(realpath -m "${1:?"usage: bench/gpu/pack.sh FILE.tar.xz [FOLDER of built programs]"}")
bin=$(realpath "${2:-$(dirname "$0")/../../build/bin}")
aim=15 most=40
# The command line is built without LLVM.
programs=(tilewright_gpu backend_cuda_test bench_gpu bench_probe bench_ptxas)
[ $# -gt 1 ] || cmake --build "$(dirname "$bin")" --target "${programs[@]}" >/dev/null
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/lib"
for program in "${programs[@]}"; do
    [ -x "$bin/$program" ] || { echo "no $bin/$program: build it first" >&2; exit 1; }
    strip -o "$folder/bin/${program/tilewright_gpu/tilewright}" "$bin/$program"
    ldd "$bin/$program" | awk '/not found/ {exit 1} $2 == "=>" {print $1, $3}'
done | sort -u | while read -r name path; do
    case $name in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | ld-linux* | libstdc++.so.* | libgcc_s.so.*) ;;
    *) cp -L "$path" "$folder/lib/$name" ;;
    esac
done
tar c -C "$folder" bin lib | xz -T0 "-${TILEWRIGHT_PACK_LEVEL:-6}" >"$out"
megabytes=$(du -m "$out" | cut -f1)
echo "$megabytes MB in $out ($aim are the aim): $(ls "$folder/lib" | wc -l) libraries, ${#programs[@]} programs"
[ "$megabytes" -le $most ] || { echo "more than the $most MB that can be carried beside the sources" >&2; exit 1; }
