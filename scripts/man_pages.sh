#!/usr/bin/env bash
# scripts/man_pages.sh TOOL FOLDER    writes a man page for the tool and one for each of its commands, from their --help, by
# help2man.
set -euo pipefail

tool="${1:?usage: man_pages.sh TOOL FOLDER}"
folder="${2:?usage: man_pages.sh TOOL FOLDER}"
mkdir -p "$folder"

page() { # NAME SUMMARY HELP
    help2man --no-info --section=1 --name="$2" --help-option="$3" --version-string="$1 $("$tool" --version)" "$tool" |
        sed -e "s/^\.TH [^ ]*/.TH ${1^^}/" -e "s/^tilewright \\\\- /${1} \\\\- /" >"$folder/$1.1"
}

page tilewright 'compile ONNX models to machine code' --help
"$tool" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1|\2/p' | while IFS='|' read -r command summary; do
    page "tilewright-$command" "$summary" "$command --help"
done
