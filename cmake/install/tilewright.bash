# Completion for bash: the commands, and what `tilewright COMMAND --help` says of options and of the values that they take.
_tilewright() {
    local tool=${COMP_WORDS[0]} command=${COMP_WORDS[1]} current=${COMP_WORDS[COMP_CWORD]} help words
    local previous=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words="$("$tool" --help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p') --help --version"
    else
        help="$("$tool" "$command" --help 2>/dev/null)"
        words="$(sed -n "s/^ *\(-[a-z],\)\{0,1\}$previous [A-Z]*:{\([^}]*\)}.*/\2/p" <<<"$help" | tr ',' ' ')"
        if [[ -z $words && $current == -* ]]; then
            words="$(grep -oE '^ +(-[a-z],)?--[a-z0-9-]+' <<<"$help" | grep -oE -e '--[a-z0-9-]+')"
        fi
    fi
    [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _tilewright tilewright
