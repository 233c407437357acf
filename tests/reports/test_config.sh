#!/bin/sh
# tests/reports/test_config.sh SHARDFIT DATA: configuration files of real users are understood as the kept text beside
# each says, or refused for the kept reason. `UPDATE=1` writes the kept texts anew.
set -eu
shardfit=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") data=$2/config
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bad=0
fail() { echo "$1"; bad=1; }

cd "$data"
n=0
for f in ds-config/*.json ds-config/*.yml accelerate/*.yaml torchtitan/*.toml; do
    code=0
    "$shardfit" config "$f" >"$out/o" 2>&1 || code=$?
    [ $code = 0 ] || [ $code = 2 ] || fail "$f: exit code $code"
    [ "${UPDATE:-}" ] && cp "$out/o" "$f.expected"
    cmp -s "$out/o" "$f.expected" || { fail "$f is understood otherwise:"; diff "$f.expected" "$out/o" || true; }
    n=$((n + 1))
done
[ $n -ge 120 ] || fail "only $n files"

# bad input: 2 and one line that says what
printf '{"num_processes": 3, "num_machines": 2, "distributed_type": "FSDP"}' >"$out/a.json"
printf 'a: [1, 2\n' >"$out/b.yaml"
printf 'x = = 1\n' >"$out/c.toml"
printf '{"zero_optimization": {"stage": 4}}' >"$out/d.json"
printf '{"learning_rate": 1}' >"$out/e.json"
for f in "$out"/[a-e].* "$out/nothere.json" "$out"; do
    code=0
    "$shardfit" config "$f" >"$out/o" 2>"$out/e" || code=$?
    [ $code = 2 ] || fail "$f gives $code"
    [ ! -s "$out/o" ] || fail "$f prints an answer"
    [ "$(wc -l <"$out/e")" = 1 ] || fail "$f is told in $(wc -l <"$out/e") lines"
done
exit $bad
