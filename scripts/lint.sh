#!/usr/bin/env bash
# scripts/lint.sh --all | --since REVISION | --format
#   --all      clang-format check and clang-tidy over every source
#   --since R  clang-format check over every source; clang-tidy over those that differ from revision R (new ones too)
#   --format   lays every source out in place
# clang-tidy reads the commands of build-lint/, where every source is compiled by itself: includes that are missing are
# found too. It is a Python package of a fixed version: since 22 it leaves the system's headers out, where Debian's 19
# spends most of its time. LINT_JOBS: how many run at a time (one a core).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folders=(src include fuzz bench python cmake examples)
mapfile -t sources < <(find "${folders[@]}" -name '*.cpp' -o -name '*.h' -o -name '*.hpp' | sort)
if [[ $1 == --format ]]; then
    exec clang-format -i "${sources[@]}"
fi

tidy_version=23.1.4

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

scripts/python_env.sh build-lint
export TIDY="$PWD/build-lint/venv/bin/clang-tidy"
if [[ ! -x build-lint/venv/bin/python ]]; then
    echo "lint: no build-lint/venv for clang-tidy: install python3-venv and allow packages to be downloaded" >&2
    exit 2
fi
if [[ "$("$TIDY" --version 2>/dev/null)" != *"version $tidy_version"* ]]; then
    build-lint/venv/bin/python -m pip install --quiet --disable-pip-version-check "clang-tidy==$tidy_version"
fi
cmake --preset lint >/dev/null

status=0
clang-format --dry-run -Werror "${sources[@]}" || status=1

# Only what the build compiles: a header is checked through the sources that include it.
compiled="$(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build-lint/compile_commands.json | sed "s|^$PWD/||" | sort -u)"
mapfile -t units < <(comm -12 <(printf '%s\n' "${changed[@]}" | sort) <(echo "$compiled"))
left_out="$(printf '%s\n' "${changed[@]}" | grep '\.cpp$' | sort | comm -23 - <(echo "$compiled") || true)"
if [[ -n $left_out ]]; then printf 'lint: not compiled here, so not checked: %s\n' $left_out; fi
echo "lint: layout of ${#sources[@]} files, clang-tidy over ${#units[@]} sources"

tidy() {
    "$TIDY" --quiet -p build-lint --header-filter="^$PWD/(src|include|fuzz|bench|python|cmake|examples)/" \
        --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-deprecated-declarations "$1"
}
export -f tidy
if ((${#units[@]} > 0)); then
    printf '%s\0' "${units[@]}" | xargs -0 -P "${LINT_JOBS:-$(nproc)}" -I FILE bash -c 'tidy FILE' || status=1
fi
if ((status == 0)); then echo "lint: clean"; else echo "lint: problems above" >&2; fi
exit $status
