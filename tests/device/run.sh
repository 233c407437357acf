#!/bin/bash
# tests/device/run.sh [BUILD [OUT]]: what can only be checked on a GPU, in under eight minutes on one. BUILD has the binaries (default: build), OUT gets
# the profile, outcomes, plots and a summary (default: out/device). Runs what it can: a step that fails is told at the end, and the exit code is 1.
set -u
build=${1:-build} out=${2:-out/device}
shardfit=$build/reports/shardfit
mkdir -p "$out"
failed=()
started=$(date +%s)

step() { # NAME LIMIT_S COMMAND...
  local name=$1 limit=$2 code=0 at
  shift 2
  at=$(date +%s)
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || code=$?
  printf '%-34s %4d s  %s\n' "$name" $(($(date +%s) - at)) "$([ $code = 0 ] && echo ok || echo "exit code $code")"
  [ $code = 0 ] || { failed+=("$name"); tail -n 3 "$out/$name.txt" | sed 's/^/    /'; }
}

"$shardfit" calibrate --gpu --quick --ranks 1 -o "$out/probe.json" >/dev/null 2>"$out/probe.txt" || { echo "no GPU can be used: $(cat "$out/probe.txt")"; exit 2; }
gpu=$(sed -n 's/.*"gpu": "\(.*\)".*/\1/p' "$out/probe.json" | head -n 1)
echo "GPU: $gpu"

for kind in attention elementwise rows; do
  [ -x "$build/tests/cuda/test_gpu_$kind" ] && step "kernels-$kind" 60 "$build/tests/cuda/test_gpu_$kind"
done
step selftest 90 "$shardfit" selftest --verbose
step calibrate 100 "$shardfit" calibrate --gpu -o "$out/profile.json"

llama1b='{"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 2048, "tie_word_embeddings": true}'
run() { # NAME MODEL MICRO_BATCH SEQ STRATEGY RANKS MORE...
  local name=$1 model=$2 micro=$3 seq=$4 strategy=$5 ranks=$6
  shift 6
  local more=("$@") launch=()
  [ "$ranks" -gt 1 ] && launch=(mpirun --allow-run-as-root --oversubscribe -q -np "$ranks")
  local job=(--model "$model" --gpu "$gpu" --gpus "$ranks" --framework shardfit --strategy "$strategy" --micro-batch "$micro" --seq-len "$seq"
    --set train.precision=bf16-mixed --set train.steps=8 --set train.data=synthetic)
  for m in "${more[@]+"${more[@]}"}"; do case $m in *=*) job+=(--set "$m") ;; esac; done
  local staged=()
  [ "$ranks" -gt 1 ] && staged=(--communicator staged)
  step "run-$name" 90 "${launch[@]+"${launch[@]}"}" "$shardfit" run "${job[@]}" "${staged[@]+"${staged[@]}"}" --detail -o "$out/$name.json"
  [ -f "$out/$name.json" ] && step "validate-$name" 60 "$shardfit" validate --measured "$out/$name.json" --profile "$out/profile.json" -o "$out/validate-$name"
}
run gpt2-124m gpt2 32 1024 single 1
run gpt2-1.5b gpt2-xl 8 1024 single 1
run llama-1b "$llama1b" 8 2048 single 1
run gpt2-124m-recompute gpt2 32 1024 single 1 train.recompute=full
for strategy in ddp fsdp zero1 zero2 zero3; do
  run "gpt2-$strategy-1" gpt2 16 1024 "$strategy" 1
  run "gpt2-$strategy-2-staged" gpt2 8 1024 "$strategy" 2
done
run gpt2-zero2-offload gpt2 16 1024 zero2 1 strategy.offload_optimizer.device=cpu

# the limit swept: the run ends with the allocation that predict names
for gib in 4 6 8 10; do
  code=0
  timeout 40 "$shardfit" run --model gpt2 --gpu "$gpu" --gpus 1 --framework shardfit --strategy single --micro-batch 32 --seq-len 1024 --set train.precision=bf16-mixed \
    --set train.steps=1 --set train.data=synthetic --set "cluster.device_memory_gib=$gib" -o "$out/oom-$gib.json" >"$out/oom-$gib.txt" 2>&1 || code=$?
  want=0
  "$shardfit" predict --model gpt2 --gpu "$gpu" --gpus 1 --framework shardfit --strategy single --micro-batch 32 --seq-len 1024 --set train.precision=bf16-mixed \
    --set "cluster.device_memory_gib=$gib" >"$out/oom-$gib-predicted.txt" 2>&1 || want=$?
  if [ $code = $want ]; then echo "memory limit $gib GiB: as predicted (exit code $code)"; else echo "memory limit $gib GiB: predicted $want, ran $code"; failed+=("oom-$gib"); fi
done

echo "$(($(date +%s) - started)) s; results in $out"
if [ ${#failed[@]} -gt 0 ]; then echo "failed: ${failed[*]}"; exit 1; fi
echo "all right"
