#!/usr/bin/env bash
# scripts/fuzz.sh BUILD SECONDS    runs every fuzz target of BUILD/bin (fuzz_*) for SECONDS each, one after another.
# A target NAME stores its corpus in BUILD/corpus/NAME and also starts from fuzz/seeds/NAME if that exists;
# if BUILD/bin/seed_NAME exists, it is run first to write seeds into the corpus. Findings go to BUILD/findings.
set -euo pipefail

build=$1 seconds=$2
shopt -s nullglob
targets=("$build"/bin/fuzz_*)
if ((${#targets[@]} == 0)); then
    echo "fuzz: no fuzz targets in $build/bin" >&2
    exit 1
fi
mkdir -p "$build/findings"
for target in "${targets[@]}"; do
    name=$(basename "$target")
    corpus="$build/corpus/$name"
    mkdir -p "$corpus"
    if [[ -x "$build/bin/seed_$name" ]]; then "$build/bin/seed_$name" "$corpus"; fi
    seeds=()
    if [[ -d "fuzz/seeds/$name" ]]; then seeds=("fuzz/seeds/$name"); fi
    echo "fuzz: $name for $seconds s"
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/findings/$name-" "$corpus" "${seeds[@]}" </dev/null
done
echo "fuzz: ${#targets[@]} target(s), nothing found"
