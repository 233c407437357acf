#!/bin/sh
# tests/reports/test_nccl_import.sh SHARDFIT DATA: `shardfit calibrate --nccl-tests`: importing one log predicts another
# of the same machine, the median within 8 % at 1 MiB and more.
set -eu
shardfit=$1 data=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "$1"; exit 1; }

for pair in 2n-h200-1nic-allreduce:2n-h200-1nic-allgather 1n-azure-a100-allreduce:1n-azure-a100-reducescatter 1n-azure-a100-reducescatter:1n-azure-a100-allgather; do
    "$shardfit" calibrate --nccl-tests "$data/nccl-tests/${pair%%:*}.txt" --output "$out/imported.json" >"$out/o" 2>"$out/e" || fail "the log is not imported: $(cat "$out/e")"
    "$shardfit" collective --profile "$out/imported.json" --against "$data/nccl-tests/${pair##*:}.txt" >"$out/o" 2>"$out/e" || true
    median=$(sed -n 's/.*error median \([0-9]*\)\..*/\1/p' "$out/o")
    [ -n "$median" ] && [ "$median" -lt 8 ] || fail "$pair: the median error is '$median' %: $(cat "$out/e")"
done

# bad input: 2, one line, and no file is left
for args in "--nccl-tests $0 --output $out/none.json" "--nccl-tests $out/nothere --output $out/none.json" "--nccl-tests $data/nccl-tests/1n-azure-a100-allreduce.txt"; do
    code=0
    # shellcheck disable=SC2086
    "$shardfit" calibrate $args >"$out/o" 2>"$out/e" || code=$?
    [ $code = 2 ] || fail "calibrate $args gives $code"
    [ "$(wc -l <"$out/e")" = 1 ] || fail "calibrate $args is told in $(wc -l <"$out/e") lines"
    [ ! -e "$out/none.json" ] || fail "calibrate $args leaves a file"
done
