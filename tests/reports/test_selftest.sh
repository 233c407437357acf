#!/bin/sh
# tests/reports/test_selftest.sh SHARDFIT: the self-test passes here and says what it tested; commands that need a GPU say so where there is none.
set -eu
shardfit=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "$1"; exit 1; }

"$shardfit" selftest >"$out/o" 2>"$out/e" || fail "selftest gives $?: $(cat "$out/o" "$out/e")"
grep -q '^host   ops against the reference      54 of   54 right' "$out/o" || fail "not 54 checks of ops: $(cat "$out/o")"
# single; dp with 1 and 2 ranks; five others with 1 and 2 ranks, with and without offload: 23 for each of 2 models and 2 types
grep -q '^host   strategies, losses and bytes   92 of   92 right' "$out/o" || fail "not 92 checks of strategies: $(cat "$out/o")"
grep -q '^all right$' "$out/o" || fail "no verdict"
"$shardfit" selftest --json >"$out/j"
[ "$(grep -c '"right": true' "$out/j")" -ge 147 ] || fail "the JSON has $(grep -c '"right": true' "$out/j") right checks"

grep -q '^cuda   not tested' "$out/o" || exit 0 # there is a GPU
cat >"$out/job.json" <<'J'
{"model": "gpt2", "framework": "shardfit", "cluster": {"gpu": "H200"}, "strategy": {"name": "single"}, "train": {"seq_len": 64, "steps": 1}}
J
for command in "run $out/job.json" "calibrate --gpu -o $out/p.json"; do
    code=0
    # shellcheck disable=SC2086
    "$shardfit" $command >"$out/o" 2>"$out/e" || code=$?
    [ $code = 2 ] || fail "$command gives $code without a GPU"
    grep -Eq 'CUDA|NVIDIA' "$out/e" || fail "$command says: $(cat "$out/e")"
    [ "$(wc -l <"$out/e")" = 1 ] || fail "$command needs $(wc -l <"$out/e") lines for it"
done
"$shardfit" predict "$out/job.json" >"$out/o" || fail "predict needs a GPU"
