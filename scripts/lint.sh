#!/usr/bin/env bash
# scripts/lint.sh --all | --since REVISION | --format
#   --all      clang-format check and clang-tidy over every source
#   --since R  clang-format check over every source; clang-tidy over those that differ from revision R (new ones too)
#   --format   lays every source out in place
# clang-tidy reads build-apart/compile_commands.json: there every source is compiled by itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t sources < <(find src include fuzz bench tests -name '*.cpp' -o -name '*.h' -o -name '*.hpp' 2>/dev/null | sort)
if [[ $1 == --format ]]; then
    exec clang-format -i "${sources[@]}"
fi

case $1 in
    --all) changed=("${sources[@]}") ;;
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

cmake --preset apart >/dev/null

status=0
clang-format --dry-run -Werror "${sources[@]}" || status=1

# Only what the build compiles: a header is checked through the sources that include it.
units=()
for file in "${changed[@]}"; do
    if [[ $file == *.cpp ]] && grep -qF "\"$PWD/$file\"" build-apart/compile_commands.json; then units+=("$file"); fi
done
echo "lint: layout of ${#sources[@]} files, clang-tidy over ${#units[@]}"
if ((${#units[@]} > 0)); then
    printf '%s\0' "${units[@]}" |
        xargs -0 -n 1 -P "$(nproc)" clang-tidy-19 --quiet -p build-apart --extra-arg=-Wno-unknown-warning-option \
        --extra-arg=-Wno-deprecated-declarations || status=1
fi
if ((status == 0)); then echo "lint: clean"; else echo "lint: problems above" >&2; fi
exit $status
