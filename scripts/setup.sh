#!/usr/bin/env bash
# scripts/setup.sh GROUP...    installs the missing Debian packages of these groups of scripts/packages.txt.
# Quick and silent when nothing is missing. Uses sudo only when not root.
set -euo pipefail

groups=("${@:-build}")
list="$(dirname "${BASH_SOURCE[0]}")/packages.txt"

wanted=()
while read -r group package _; do
    for g in "${groups[@]}"; do
        if [[ $group == "$g" ]]; then wanted+=("$package"); fi
    done
done < <(grep -v '^[[:space:]]*\(#\|$\)' "$list")
if ((${#wanted[@]} == 0)); then
    echo "setup: no packages in group(s) ${groups[*]}; $list has: $(awk '/^[a-z]/ {print $1}' "$list" | sort -u | xargs)" >&2
    exit 2
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "setup: not a Debian system; going on, and the build will need the counterparts of: ${wanted[*]}" >&2
    exit 0
fi

# dpkg-query exits 1 if a name is unknown; known names are printed nevertheless.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
    sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi

as_root=()
if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || {
        echo "setup: not root and no sudo; please install: apt-get install ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo)
    if [[ ! -t 0 ]]; then as_root=(sudo -n); fi # no terminal for a password
fi

echo "setup: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
"${apt[@]}" update </dev/null
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null
