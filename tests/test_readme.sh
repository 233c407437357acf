#!/usr/bin/env bash
# The README's table of commands is the program's own list: a row for each, none for another.
# Usage: test_readme.sh PATH-TO-shardfit PATH-TO-README
set -eu
program=$1 readme=$2
listed=$("$program" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\)  .*/\1/p' | sort)
rows=$(sed -n 's/^| `shardfit \([a-z-]*\)[^|]*.*/\1/p' "$readme" | sort)
if [ "$listed" != "$rows" ]; then
  echo "commands of the program (<) and of the README (>):"
  diff <(echo "$listed") <(echo "$rows") || true
  exit 1
fi
if grep -n '@@' "$readme"; then
  echo "the README has places that were never filled"
  exit 1
fi
