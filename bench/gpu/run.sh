#!/bin/sh
# Everything that needs a GPU, in one go: builds, checks kernels and models on the device, prints tables beside torch's.
#
#     bench/gpu/run.sh [folder for models]
#
# Needs NVIDIA's driver and NVRTC where the loader looks; torch is optional. Stops at what is wrong.
set -eu
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$PWD/build/cache}  # code and measurements of this machine
cd "$(dirname "$0")/../.."
models=${1:-build/gpu_models}
cmake --preset release >/dev/null
ninja -C build tilewright backend_cuda_test bench_gpu
mkdir -p "$models"

echo "== kernels on the device, against the interpreter"
build/bin/backend_cuda_test --gtest_filter='Gpu.*:Nvrtc.*'

echo "== models on the device, against the interpreter"
check() {  # name, its settings
    name=$1
    shift
    build/bin/tilewright zoo "$name" -o "$models/$name.onnx" "$@" >/dev/null
    for precision in f32 tf32 f16 bf16; do
        echo "-- $name, $precision"
        build/bin/tilewright verify "$models/$name.onnx" --target cuda --precision $precision
    done
    echo "-- $name, timed"
    build/bin/tilewright bench "$models/$name.onnx" --target cuda --precision tf32
}
check mlp
check bert_tiny
check mobilenet_v2 --set size=64
check resnet18 --set size=64

gemms="gemm:4096x4096x4096 gemm:8192x8192x8192 gemm:1024x1024x1024"
chains="chain:1x512x256x64x64 chain:1x512x256x64x128 chain:1x512x256x64x256 chain:1x512x512x256x256
 chain:1x512x512x512x256 chain:1x512x512x1024x256 chain:1x512x512x128x128 chain:1x1024x512x128x128
 chain:1x2048x512x128x128 chain:1x1024x1024x128x128 chain:4x1024x1024x128x128 chain:8x1024x1024x128x128"
attentions="attention:8x512x512x64x64 attention:12x512x512x64x64 attention:16x512x512x64x64
 attention:12x256x256x64x64 attention:16x256x256x64x64 attention:16x256x256x80x80 attention:1x512x256x64x64
 attention:1x768x384x64x64 attention:1x1024x512x64x64 attention:16x4096x4096x64x64"
for type in f16 bf16; do
    echo "== $type: ours, then torch's"
    build/bin/bench_gpu $gemms $chains $attentions --type $type
    echo "-- products as the rule and as Gensor's walk has them"
    for scheduler in default gensor; do build/bin/bench_gpu $gemms --type $type --scheduler $scheduler; done
    python3 bench/gpu/torch_peers.py $gemms $chains $attentions --type $type || echo "(no torch to compare with)"
done
echo "== tf32"
build/bin/bench_gpu $gemms --type f32 --precision tf32
