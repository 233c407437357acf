#!/bin/sh
# tests/reports/test_help.sh SHARDFIT ROOT: every command has a --help that exits 0 and names its options; the man page and
# the bash completion know every command and every option; an unknown one exits 2.
set -u
program=$1 root=$2 bad=0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "$*"; bad=1; }

"$program" --help >"$dir/help" || fail "shardfit --help fails"
commands=$(sed -n 's/^  \([a-z][a-z-]*\)  *[^ ].*/\1/p' "$dir/help")
[ "$(echo "$commands" | wc -w)" -ge 5 ] || fail "few commands: $commands"
sh "$root/scripts/man.sh" "$program" >"$dir/shardfit.1" || fail "the man page cannot be made"
if command -v groff >/dev/null; then
    groff -man -ww -z "$dir/shardfit.1" 2>"$dir/groff" || fail "groff fails"
    grep -v 'cannot .*break line' "$dir/groff" && fail "groff complains of the man page"
fi
complete() { # words of a command line, the last one to be completed
    bash -c 'source "$1/scripts/shardfit.bash"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shardfit; printf "%s\n" "${COMPREPLY[@]}"' - "$root" "$@"
}
complete "$program" '' >"$dir/complete"
for command in $commands; do
    grep -qx "$command" "$dir/complete" || fail "bash does not complete $command"
    grep -q "^.SS shardfit $command\$" "$dir/shardfit.1" || fail "the man page lacks $command"
    [ "$command" = version ] && continue
    "$program" "$command" --help >"$dir/options" 2>&1 || fail "shardfit $command --help fails"
    "$program" "$command" --no-such-option >/dev/null 2>&1
    [ $? -eq 2 ] || fail "shardfit $command --no-such-option does not exit with 2"
    complete "$program" "$command" -- >"$dir/complete_options"
    for option in $(grep -oE '(^ *|, )--[a-z][a-z-]*' "$dir/options" | tr -d ' ,'); do
        grep -qx -e "$option" "$dir/complete_options" || fail "bash does not complete $command $option"
        grep -q -e "$(printf '%s' "$option" | sed 's/-/\\\\-/g')" "$dir/shardfit.1" || fail "the man page lacks $command $option"
    done
done
"$program" no-such-command >/dev/null 2>"$dir/err"
[ $? -eq 2 ] || fail "an unknown command does not exit with 2"
exit $bad
