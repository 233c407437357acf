# Completion of shardfit for bash: commands, options and files. It asks the program itself (`shardfit --help`,
# `shardfit COMMAND --help`), so it never disagrees with it.
# Installed as PREFIX/share/bash-completion/completions/shardfit; or: source scripts/shardfit.bash

_shardfit() {
    local program=${COMP_WORDS[0]} command=${COMP_WORDS[1]} word=${COMP_WORDS[COMP_CWORD]} words
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *[^ ].*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$words --help --version" -- "$word")
        return
    fi
    case $word in
    -*)
        words=$("$program" "$command" --help 2>/dev/null | grep -oE -- '(^ *|, )--[a-z][a-z-]*' | tr -d ' ,')
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        ;;
    *)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ;;
    esac
}
complete -o filenames -F _shardfit shardfit
