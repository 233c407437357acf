#!/bin/sh
# tests/reports/test_evidence.sh SHARDFIT DATA: `shardfit evidence` as a user calls it. How good the predictions are is
# no test's business, only that rows are read, judged, counted and skipped as they should.
set -eu
shardfit=$1 data=$2/evidence
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "$1"; exit 1; }

"$shardfit" evidence --json --csv "$out/rows.csv" "$data/runs.csv" >"$out/o" 2>"$out/e" || fail "gives $?: $(cat "$out/e")"
grep -q '"quantities"' "$out/o" || fail "no quantities"
[ "$(grep -c '"id"' "$out/o")" = 5 ] || fail "not five rows"
[ "$(wc -l <"$out/rows.csv")" = 6 ] || fail "the table has not five rows and a header"
grep -q 'expert parallelism is not modelled' "$out/rows.csv" || fail "the tensor-parallel row is not skipped by name"
"$shardfit" evidence "$data/runs.csv" >"$out/o"
grep -q 'Skipped: 1 of 5 rows' "$out/o" || fail "one row of five is to be skipped"
grep -Eq '^  lf +time +2 ' "$out/o" || fail "two rows of lf have a time"


# the rows as JOBs give the same predictions; "DGX H100 (8x400 Gb/s)" names 8 NICs, not H100's 100
"$shardfit" evidence --jobs "$out/rows.jsonl" --csv "$out/a.csv" "$data/runs.csv" >"$out/o"
"$shardfit" evidence --csv "$out/b.csv" "$out/rows.jsonl" >"$out/o"
for n in 7 10; do
    [ "$(grep -v 'not modelled' "$out/a.csv" | cut -d, -f$n)" = "$(cut -d, -f$n "$out/b.csv")" ] || fail "column $n differs for the rows as jobs"
done
sed 's/NVLink,,bf16/NVLink,DGX H100 (8x400 Gb\/s),bf16/' "$data/runs.csv" >"$out/net.csv"
"$shardfit" evidence --jobs "$out/net.jsonl" "$out/net.csv" >"$out/o"
grep -q '"nics":8,"gbit_per_nic":400' "$out/net.jsonl" || fail "8x400 Gb/s is read as $(grep -o '"inter":{[^}]*}' "$out/net.jsonl")"

# jobs with what was observed: GPT-2 on a card of 80 GB fits, a 70B model on one card does not
printf '%s\n' '{"id": "a", "job": {"model": "gpt2", "framework": "pytorch", "cluster": {"gpu": "A100-80GB"}, "strategy": "single", "train": {"micro_batch": 1}}, "truth": {"fits": true}}' \
    '{"id": "b", "job": {"model": "llama-2-70b", "framework": "pytorch", "cluster": {"gpu": "A100-80GB"}, "strategy": "single", "train": {"micro_batch": 1}}, "truth": {"fits": false}}' >"$out/jobs.jsonl"
"$shardfit" evidence "$out/jobs.jsonl" >"$out/o"
grep -q 'verdict      2 rows, 2 right: 1 of 1 that ran, 1 of 1 that ran out' "$out/o" || fail "two verdicts are to be right: $(cat "$out/o")"

echo 'a,b' >"$out/bad.csv"
echo '{' >"$out/bad.jsonl"
for f in "$out/bad.csv" "$out/bad.jsonl" "$out/nothere.csv"; do
    code=0
    "$shardfit" evidence "$f" >"$out/o" 2>"$out/e" || code=$?
    [ $code = 2 ] || fail "$f gives $code"
    [ "$(wc -l <"$out/e")" = 1 ] || fail "$f is told in $(wc -l <"$out/e") lines"
done
