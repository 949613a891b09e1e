#!/usr/bin/env bash
# scripts/lint.sh --all | --since REVISION | --format
#   --all      clang-format check and clang-tidy over every source, in the batches of scripts/batches.py: parsed together,
#              up to eight sources read their headers once. Every source is then parsed by itself, for missing includes,
#              which a batch hides and another order of its sources shows.
#   --since R  clang-format check over every source; clang-tidy over those that differ from revision R (new ones too)
#   --format   lays every source out in place
# clang-tidy reads the commands of build-lint/ (--all), or of build-apart/, where every source is compiled by itself.
# LINT_JOBS: how many run at a time (one a core).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folders=(src include fuzz bench python cmake)
mapfile -t sources < <(find "${folders[@]}" -name '*.cpp' -o -name '*.h' -o -name '*.hpp' | sort)
if [[ $1 == --format ]]; then
    exec clang-format -i "${sources[@]}"
fi

# compiled FOLDER: the files that are compiled there.
compiled() { sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$1/compile_commands.json" | sort -u; }
# contents FILE...: the sources in them, relative to this folder; of a source itself.
contents() {
    local file
    for file in "$@"; do
        if [[ $file == */batches/* ]]; then sed -n 's/^#include "\(\/.*\)"$/\1/p' "$file"; else echo "$file"; fi
    done | sed -n "s|^$PWD/||p" | sort -u
}

build=build-apart
case $1 in
    --all) build=build-lint ;;
    --since)
        git rev-parse -q --verify "$2^{commit}" >/dev/null || {
            echo "lint: no revision $2 here; use ALL=1 or LINT_SINCE=REVISION" >&2
            exit 2
        }
        mapfile -t changed < <({
            git diff --name-only --diff-filter=d "$2"
            git ls-files --others --exclude-standard
        } | sort -u)
        ;;
    *)
        echo "lint: unknown option $1" >&2
        exit 2
        ;;
esac

if [[ $build == build-lint ]]; then scripts/python_env.sh $build; fi
cmake --preset "${build#build-}" >/dev/null

status=0
clang-format --dry-run -Werror "${sources[@]}" || status=1

# Only what the build compiles: a header is checked through the sources that include it.
units=()
if [[ $build == build-lint ]]; then
    mapfile -t units < <(compiled $build)
    # The commands that write the batches, without the libraries that CMake has them wait for.
    for file in "${units[@]}"; do
        if [[ $file == */batches/* ]]; then ninja -C $build -t commands -s "${file#"$PWD/$build/"}"; fi
    done | grep '^cd ' | sort -u | bash
    mapfile -t covered < <(contents "${units[@]}")
    left_out="$(printf '%s\n' "${sources[@]}" | grep '\.cpp$' | grep -vxFf <(printf '%s\n' "${covered[@]}") || true)"
    if [[ -n $left_out ]]; then printf 'lint: not compiled here, so not checked: %s\n' $left_out; fi
else
    mapfile -t covered < <(comm -12 <(printf '%s\n' "${changed[@]}" | sed "s|^|$PWD/|" | sort) <(compiled $build))
    units=("${covered[@]}")
    mapfile -t covered < <(contents "${units[@]}")
fi
echo "lint: layout of ${#sources[@]} files, clang-tidy over ${#covered[@]} sources"

# The header filter covers the sources of a batch, which clang-tidy takes for headers. It would find fault with the batch
# itself, which includes sources.
tidy() {
    local options=()
    if [[ $2 == */batches/* ]]; then options=(--checks=-bugprone-suspicious-include); fi
    clang-tidy-19 --quiet -p "$1" --header-filter="^$PWD/(src|include|fuzz|bench|python|cmake)/" "${options[@]}" \
        --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-deprecated-declarations "$2"
}
export -f tidy
if ((${#units[@]} > 0)); then
    printf '%s\0' "${units[@]}" |
        xargs -0 -P "${LINT_JOBS:-$(nproc)}" -I FILE bash -c 'tidy "$@"' tidy $build FILE || status=1
fi

# parse_apart: every command of build-apart/, without code.
parse_apart() {
    cmake --preset apart >/dev/null
    sed -n 's/^ *"command": "\(.*\)",$/\1/p' build-apart/compile_commands.json | sed 's/\\"/"/g; s/\\\\/\\/g' |
        sed -E 's|^[^ ]+|clang++-19 -fsyntax-only -Wno-unknown-warning-option -Wno-deprecated-declarations|; s| -o [^ ]+ -c | |' |
        (cd build-apart && xargs -d '\n' -P "${LINT_JOBS:-$(nproc)}" -I COMMAND bash -c 'COMMAND')
}
if [[ $build == build-lint ]]; then parse_apart || status=1; fi
if ((status == 0)); then echo "lint: clean"; else echo "lint: problems above" >&2; fi
exit $status
