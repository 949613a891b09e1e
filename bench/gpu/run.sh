#!/bin/bash
# Runs everything that needs a GPU, in less than nine minutes: all tests of kernels on the device, some of them under
# compute-sanitizer, models against the interpreter, tables of times with torch's, ptxas's resource usage.
#
#     bench/gpu/run.sh [folder for models]
#
# TILEWRIGHT_BIN=FOLDER: programs that were built elsewhere (bench/gpu/pack.sh); otherwise they are built first, in
# addition to the nine minutes. TILEWRIGHT_PARTS="tests ptxas ...": only these parts. TILEWRIGHT_SECONDS=530: time limit of
# all parts; each step has its own limit as well. Steps that were skipped for lack of time are listed at the end, and so are
# missing components: a GPU and its driver, NVRTC, compute-sanitizer, torch. The exit status is that of the parts that ran.
# The output is stored, with date and command, in TILEWRIGHT_TABLES=FILE (build/gpu.md if there is a GPU);
# docs/gpu.md quotes it.
#
# Parts run in order of importance: probes and tests, then kernels, models, products, convolutions, the sanitizer. Expected seconds on
# a machine with 16 cores, of 530; CPU times are measured (2 cores of Zen 4, NVRTC 13.0), torch's times are guesses:
#
#     probes          15   of 30: rates and latencies
#     tests           60   of 120: 1,400 kernels of 0.13 s through NVRTC, eight processes; the reference
#     kernels         70   of 120: 54 generated (20 s of CPU time, on all cores), torch's eager ones, then 20 s of compiled
#     models         190   of 330: verify 12 times, four at a time; bench 8 times 3 to 15; torch's, precompiled, 100
#     products        40   of 85
#     convolutions    25   of 50
#     sanitizer       40   of 60: four tools at a time, on the tests' cached code
#     ptxas            7   of 30: 160 kernels of 0.5 s
#
# While the tests run, models are written and torch fills its compile cache. The sum of the limits exceeds the total: a step
# that uses its limit shortens later ones, and skipped steps are listed.
#
# TILEWRIGHT_DRY_RUN=1: every part on a machine without a GPU, with a fake driver that loads kernels but does not run them
# (fake_driver.cpp), a fake NVRTC, small sizes, peers on the CPU. Its output is not a measurement; it fails if a program
# crashes, hangs, or rejects its arguments, and ignores wrong results, which are expected. The test gpu_dry_run is this.
set -u
cd "$(dirname "$0")/../.." || exit 1
models=${1:-build/gpu_models}
bin=${TILEWRIGHT_BIN:-}
parts=${TILEWRIGHT_PARTS:-probes tests kernels models products convolutions sanitizer peers ptxas}
dry=${TILEWRIGHT_DRY_RUN:-}
if [ -z "$dry" ]; then
    export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$PWD/build/cache}  # code and measurements of this machine
else
    # Neither code nor measurements of a dry run may be found by others.
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    export XDG_CACHE_HOME=$scratch TILEWRIGHT_TEST_CUBINS=$scratch/cubins
    mkdir "$scratch/bin"
    printf '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift 2; done\nexec "$@"\n' >"$scratch/bin/compute-sanitizer"
    chmod +x "$scratch/bin/compute-sanitizer"
    PATH=$scratch/bin:$PATH
fi
patience=1
[ -z "$dry" ] || patience=4  # a dry run may be on a small machine
budget=${TILEWRIGHT_SECONDS:-$((530 * patience))}
here=$PWD
missing=() failed=()
device=cuda
python=${PYTHON:-python3}

if [ -z "$bin" ]; then
    bin=$here/build/bin
    cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null &&
        cmake --build build --target tilewright backend_cuda_test bench_gpu bench_probe bench_ptxas ${dry:+fake_driver fake_nvrtc} ||
        exit 1
fi
begin=$SECONDS
mkdir -p "$models" "$XDG_CACHE_HOME"

# Libraries: those packed with the programs by pack.sh; then, for NVRTC, cuBLASLt and cuDNN, those of torch's pip packages,
# and the toolkit's.
libraries=${LD_LIBRARY_PATH:-}
add_libraries() { [ -d "$1" ] && libraries=${libraries:+$libraries:}$1; }
if [ -n "$dry" ]; then
    device=cpu
    for library in libcuda.so.1 nvrtc/libnvrtc.so.13; do
        [ -e "$bin/../fake/$library" ] || { echo "no $bin/../fake/$library: build fake_driver and fake_nvrtc"; exit 1; }
    done
    libraries=$bin/../fake:$bin/../fake/nvrtc
else
    while read -r folder; do add_libraries "$folder"; done < <("$python" -c 'import glob, sysconfig
print("\n".join(glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*/lib")))' 2>/dev/null)
    add_libraries /usr/local/cuda/lib64
fi
# Only for the built programs: the packed libraries are older than those of the machine's other programs.
built() { LD_LIBRARY_PATH=${libraries:+$libraries:}$bin/../lib "$@"; }
export -f built
export libraries bin

tables=${TILEWRIGHT_TABLES:-}
if [ -z "$tables" ] && [ -z "$dry" ] && nvidia-smi -L 2>/dev/null | grep -q GPU; then tables=build/gpu.md; fi
if [ -n "$tables" ]; then
    mkdir -p "$(dirname "$tables")"
    printf '# Measured on a GPU\n\n%s, `%s`, parts: %s%s\n\n```\n' "$(date -u +%Y-%m-%d)" "bench/gpu/run.sh" "$parts" \
        "${dry:+; a dry run, no measurements}" >"$tables"
    exec > >(tee -a "$tables") 2>&1
    writer=$!
fi

wanted() { case " $parts " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
# Runs a command, or a function of this script, with a time limit in seconds: step SECONDS COMMAND...
step() {
    local seconds=$(($1 * patience)) left=$((budget - SECONDS + begin))
    shift
    if [ $left -lt 5 ]; then
        missing+=("time for: $*")
        return
    fi
    [ "$seconds" -le $left ] || seconds=$left
    echo "-- $*"
    local status=0 from=$SECONDS
    timeout "$seconds" bash -c '"$@"' step "$@" || status=$?
    echo "   ($((SECONDS - from)) s)"
    # 1: wrong results, which a dry run ignores; 124: timeout; 126 and more: no such program, a signal.
    if [ $status -gt 1 ] || { [ $status = 1 ] && [ -z "$dry" ]; }; then failed+=("$* (status $status)"); fi
}
# The highest exit status of these processes. 1: wrong results; more: crashes.
worst() {
    local status=0 worst=0 p
    for p in "$@"; do
        status=0
        wait "$p" || status=$?
        [ $status -le $worst ] || worst=$status
    done
    return $worst
}
# Runs the tests of this filter on the device, distributed over several processes: a device error only affects one.
tests_on_gpu() {
    local count=$1 filter=$2 all=() i
    for ((i = 0; i < count; ++i)); do
        GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$i TILEWRIGHT_TESTS_ON_GPU=1 built "$bin/backend_cuda_test" \
            --gtest_brief=1 --gtest_filter="$filter" &
        all+=($!)
    done
    worst "${all[@]}"
}
sanitize() {
    local filter=$1 all=() tool
    for tool in memcheck racecheck synccheck initcheck; do
        TILEWRIGHT_TESTS_ON_GPU=1 built timeout 55 compute-sanitizer --tool $tool --error-exitcode 9 "$bin/backend_cuda_test" \
            --gtest_brief=1 --gtest_filter="$filter" > >(sed "s/^/$tool: /") 2>&1 &
        all+=($!)
    done
    worst "${all[@]}"
}
# Every model at every precision, four at a time.
verify_models() {
    local model precision all=() status=0
    for model in "$@"; do
        for precision in f32 tf32 f16 bf16; do
            (
                right=0
                text=$(built "$bin/tilewright" verify "$models/$model.onnx" --target cuda --precision $precision 2>&1) ||
                    right=$?
                printf '%s %s\n%s\n' "$model" "$precision" "$text"
                exit $right
            ) &
            all+=($!)
        done
        worst "${all[@]}" || status=$(($? > status ? $? : status))
        all=()
    done
    return $status
}
export -f worst tests_on_gpu sanitize verify_models
export models

has_gpu=0
if [ -n "$dry" ]; then
    has_gpu=1
    missing+=("everything: this was a dry run")
elif nvidia-smi -L 2>/dev/null | grep -q GPU; then
    has_gpu=1
    nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem --format=csv,noheader
else
    missing+=("a GPU with NVIDIA's driver: nothing ran on a device")
fi
has_nvrtc=1
built "$bin/bench_gpu" gemm:64x64x64 --compile-only >/dev/null 2>&1 || has_nvrtc=0
[ $has_nvrtc = 1 ] || missing+=("NVRTC (libnvrtc) in the loader's path: no kernel was compiled")
has_torch=0
[ $has_gpu = 1 ] && "$python" -c "import torch, sys; sys.exit('$device' == 'cuda' and not torch.cuda.is_available())" \
    2>/dev/null && has_torch=1
[ $has_torch = 1 ] || missing+=("torch with a GPU: no peers")

gemms="gemm:4096x4096x4096 gemm:8192x8192x8192 gemm:1024x1024x1024 gemm:512x3072x768 gemm:512x768x3072"
chains="chain:1x512x256x64x64 chain:1x512x256x64x128 chain:1x512x256x64x256 chain:1x512x512x256x256
 chain:1x512x512x512x256 chain:1x512x512x1024x256 chain:1x512x512x128x128 chain:1x1024x512x128x128
 chain:1x2048x512x128x128 chain:1x1024x1024x128x128 chain:4x1024x1024x128x128 chain:8x1024x1024x128x128"
attentions="attention:8x512x512x64x64 attention:12x512x512x64x64 attention:16x512x512x64x64
 attention:12x256x256x64x64 attention:16x256x256x64x64 attention:16x256x256x80x80 attention:1x512x256x64x64
 attention:1x768x384x64x64 attention:1x1024x512x64x64 attention:16x4096x4096x64x64"
# Gensor's convolutions: images, channels, pixels, results, taps, stride; NHWC.
convolutions="conv:128x256x30x256x3x2 conv:128x128x28x128x3x1 conv:128x128x58x128x3x2 conv:128x3x224x64x7x2
 conv:128x64x56x64x3x1 conv:128x64x56x256x1x1 conv:128x256x14x256x3x1 conv:128x512x7x512x3x1"
compiled="resnet50 bert_base segformer_b0 efficientvit_b1 candy yolox_nano bert_small bert_large"
verified="bert_tiny mobilenet_64 resnet18_64"
# Without tests of the executor itself, and a test whose kernels CudaText contains too.
all_tests="Cuda*:GpuSchedule.*:Gpu.*:Nvrtc.*:Cudnn.*-CudaGroupText.IsSeenToGoWrong*:Gpu.RunsWhatTheExecutorRuns"
few_tests="Gpu.RunsAFewOfThem:CudaMatrices.*:Cuda*Text.OfAttentions*:CudaMatrixText.OfProducts*:CudaGroupText.OfSwizzled*"
if [ -n "$dry" ]; then
    gemms="gemm:256x256x256" chains="chain:1x512x256x64x64" attentions="attention:8x512x512x64x64"
    convolutions="conv:1x64x14x64x3x1" compiled="mobilenet_64 resnet18_64" verified="bert_tiny"
    all_tests="Gpu.*:Nvrtc.*:CudaMatrices.*:CudaMatrixText.OfConvolutions*-Gpu.RunsWhatTheExecutorRuns"
fi
drawn=40
[ -z "$dry" ] || drawn=4
peers="--device $device"
only=$([ $has_gpu = 1 ] || echo --compile-only)

# In the background, while tests run: writes models, and fills torch's compile cache.
background=()
if wanted models; then
    # Name, the zoo's model, its settings.
    while read -r name zoo settings; do
        case " $compiled $verified mlp " in *" $name "*) ;; *) continue ;; esac
        [ -e "$models/$name.onnx" ] ||
            built "$bin/tilewright" zoo "$zoo" -o "$models/$name.onnx" $settings >/dev/null 2>&1 &
        background+=($!)
    done <<'LIST'
mlp mlp
bert_tiny bert_tiny
resnet18_64 resnet18 --set size=64
mobilenet_64 mobilenet_v2 --set size=64
bert_small bert_small --set seq=512
bert_base bert_base --set seq=512
bert_large bert_large --set seq=512
resnet50 resnet50
segformer_b0 segformer_b0
efficientvit_b1 efficientvit_b1
candy candy
yolox_nano yolox_nano
LIST
    if [ $has_torch = 1 ] && wanted peers && [ -z "$dry" ]; then
        printf '%s\n' $compiled | timeout 120 xargs -P 4 -I{} "$python" bench/gpu/torch_models.py {} --type f32 --warm \
            >/dev/null 2>&1 &
        background+=($!)
    fi
fi

if wanted probes && [ $has_nvrtc = 1 ]; then
    echo "== probes: rates and latencies of the device"
    step 30 built "$bin/bench_probe" $only
fi
if wanted tests && [ $has_nvrtc = 1 ]; then
    if [ $has_gpu = 1 ]; then
        echo "== every test of kernels on the device"
        step 120 tests_on_gpu 8 "$all_tests"
    else
        echo "== kernels in the executor"
        step 90 built "$bin/backend_cuda_test" --gtest_brief=1 --gtest_filter='Gpu.*:Nvrtc.*:CudaMatri*'
    fi
fi
for p in "${background[@]+"${background[@]}"}"; do wait "$p"; done  # measurements run alone
if wanted models; then
    for name in $compiled $verified; do [ -s "$models/$name.onnx" ] || failed+=("zoo: no $name"); done
fi

if wanted kernels && [ $has_nvrtc = 1 ]; then
    for type in f16 bf16; do
        echo "== $type: G1 to G12, S1 to S9, products; generated, then torch's"
        step 25 built "$bin/bench_gpu" $gemms $chains $attentions --type $type --precision $type --seconds 0.03 $only
        [ $has_torch = 1 ] && wanted peers &&
            step 45 "$python" bench/gpu/torch_peers.py $gemms $chains $attentions --type $type --seconds 0.03 --limit 20 $peers
    done
fi
if wanted models; then
    echo "== models"
    if [ $has_gpu = 1 ]; then
        step 60 verify_models $verified
        for name in $compiled; do
            step 30 built "$bin/tilewright" bench "$models/$name.onnx" --target cuda --precision tf32
        done
        [ $has_torch = 1 ] && wanted peers &&
            step 150 "$python" bench/gpu/torch_models.py $compiled --type f32 --seconds 0.3 --limit 100 $peers \
                ${dry:+--no-compile}
    else
        for name in mlp bert_tiny; do
            step 60 built "$bin/tilewright" verify "$models/$name.onnx" --target cuda --precision tf32 --lockstep
        done
    fi
fi
if wanted products && [ $has_nvrtc = 1 ]; then
    echo "== products: the model's first eight schedules; by tf32; as Gensor's walk has them"
    step 25 built "$bin/bench_gpu" ${gemms%% *} --type bf16 --candidates 8 --seconds 0.05 $only
    step 20 built "$bin/bench_gpu" $gemms --type f32 --precision tf32 --seconds 0.05 $only
    step 20 built "$bin/bench_gpu" $gemms --type f16 --scheduler gensor --seconds 0.05 $only
    [ $has_torch = 1 ] && wanted peers && step 20 "$python" bench/gpu/torch_peers.py $gemms --type f32 --seconds 0.05 $peers
fi
if wanted convolutions && [ $has_nvrtc = 1 ]; then
    echo "== convolutions; generated, then cuDNN's by torch"
    step 25 built "$bin/bench_gpu" $convolutions --type f16 --seconds 0.03 $only
    [ $has_torch = 1 ] && wanted peers &&
        step 25 "$python" bench/gpu/torch_peers.py $convolutions --type f16 --seconds 0.03 $peers
fi
if wanted sanitizer; then
    if [ $has_gpu = 1 ] && command -v compute-sanitizer >/dev/null; then
        echo "== tests under compute-sanitizer"
        step 60 sanitize "$few_tests"
    else
        missing+=("compute-sanitizer on a GPU")
    fi
fi
if wanted ptxas && [ $has_nvrtc = 1 ]; then
    echo "== resource usage by ptxas"
    step 30 built "$bin/bench_ptxas" --candidates $drawn --threads "$(nproc)"
fi

echo "== $((SECONDS - begin)) seconds"
for m in "${missing[@]+"${missing[@]}"}"; do echo "missing: $m"; done
for f in "${failed[@]+"${failed[@]}"}"; do echo "FAILED: $f"; done
if [ -n "$tables" ]; then
    echo '```'
    exec >&- 2>&-
    wait "$writer"
fi
[ ${#failed[@]} = 0 ]
