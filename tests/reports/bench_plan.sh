#!/bin/sh
# tests/reports/bench_plan.sh SHARDFIT: the planner's speed: Llama-3-70B on 64 H100s over the full space, one core.
# Bar: at least 20,000 candidates in less than 2 s of processor time.
set -eu
program=$1
for framework in "" "--framework shardfit"; do
    OPENBLAS_NUM_THREADS=1 "$program" plan --model llama-3-70b --gpu "H100 SXM5" --gpus 8 --nodes 8 --seq-len 8192 --grad-accum 4 --optimizers adamw,adamw-fused $framework --json >out.$$ || true
    echo "plan $framework: $(grep -E '"(candidates|fitting|structures|simulated|seconds)"' out.$$ | head -5 | tr -d '\n ')"
done
awk -F'[:,]' '/^  "candidates"/ { c = $2 } /^  "seconds"/ { s = $2 } END { exit !(c >= 20000 && s < 2) }' out.$$ && code=0 || code=1
rm -f out.$$
exit $code
