#!/bin/sh
# scripts/man.sh SHARDFIT: the man page shardfit(1) on stdout, from what the program itself says with --help.
set -eu
program=$1

escaped() { # as it stands: backslashes and leading dots mean something to troff
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"
}

version=$("$program" version | sed -n '1s/^shardfit \([^ ]*\).*/\1/p')
echo ".TH SHARDFIT 1 \"\" \"shardfit $version\" \"User Commands\""
cat <<'END'
.SH NAME
shardfit \- which parallel strategy fits your hardware, how fast it will be, what bounds it
.SH SYNOPSIS
.B shardfit
.I COMMAND
[\fIOPTION\fR...] [\fIJOB.json\fR...]
.SH DESCRIPTION
END
"$program" --help | sed -n 's/^Which /Which /p' | escaped
echo '.SH COMMANDS'
commands=$("$program" --help | sed -n 's/^  \([a-z][a-z-]*\)  *[^ ].*/\1/p')
for command in $commands; do
    echo ".SS shardfit $command"
    summary=$("$program" --help | sed -n "s/^  $command  *\([^ ].*\)/\1/p" | escaped)
    echo "$summary."
    [ "$command" = version ] && continue
    printf '.PP\n.nf\n'
    "$program" "$command" --help | escaped
    echo '.fi'
done
cat <<'END'
.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
The answer is no: it does not fit, or errors are above the bar.
.TP
.B 2
The input is wrong; the message says where.
.TP
.B 3
A real run failed; what was measured until then is saved.
.SH ENVIRONMENT
.TP
.B SHARDFIT_DATA
Directory of the catalogues (GPUs, links, models) instead of the installed one.
.TP
.B SHARDFIT_PROFILE
The measurements of this machine that calibrate writes and predict reads.
.TP
.B NO_COLOR
If set, tables on a terminal have no colours.
END
