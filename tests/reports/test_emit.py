"""test_emit.py SHARDFIT DATA: what --emit writes reads back to the same job, and its train.py trains as was planned.

Same job: what predict says of it (memory, communication, time) is equal. The program runs on the CPU, with gloo, if this Python has PyTorch.
"""
import importlib.util
import json
import os
import random
import socket
import subprocess
import sys
import tempfile

SHARDFIT, DATA = sys.argv[1:3]
SMALL = {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 320,
         "vocab_size": 1000, "max_position_embeddings": 64, "tie_word_embeddings": False}
FAMILIES = {
    "llama": SMALL,
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500, "n_positions": 32},
    "qwen3": {"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
              "intermediate_size": 128, "vocab_size": 500, "max_position_embeddings": 32, "tie_word_embeddings": True},
    "bloom": {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500},
    "gpt_neox": {"model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 500,
                 "max_position_embeddings": 32},
    "phi3": {"model_type": "phi3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128,
             "vocab_size": 500, "max_position_embeddings": 32},
}


def shardfit(*args, ok=(0, 1)):
    done = subprocess.run([SHARDFIT, *args], capture_output=True, text=True)
    assert done.returncode in ok, "shardfit %s: %d: %s" % (" ".join(args), done.returncode, done.stderr)
    return done.stdout


def predicted(path):
    outcome = json.loads(shardfit("predict", "--json", path))
    del outcome["job"]
    return outcome


def write(folder, name, job):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        json.dump(job, file)
    return path


def emitted(folder, job, name="planned.json"):
    return shardfit("predict", write(folder, name, job), "--emit", folder)


# ---- the same job, read back ----


def random_job(r):
    framework, strategy = r.choice([("pytorch", s) for s in ("single", "dp", "ddp", "fsdp", "fsdp", "fsdp2", "fsdp2")] +
                                   [("deepspeed", s) for s in ("zero1", "zero2", "zero2", "zero3", "zero3", "zero3")])
    nodes = 1 if strategy in ("single", "dp") else r.choice([1, 1, 2])
    knobs, precision = {"name": strategy}, r.choice(["fp32", "bf16-mixed", "fp16-mixed"])
    if strategy == "ddp":
        knobs["gradient_as_bucket_view"] = r.random() < 0.3
    if strategy == "fsdp":
        knobs.update(sharding=r.choice(["full_shard", "shard_grad_op", "no_shard"] + (["hybrid_shard"] if nodes > 1 else [])), use_orig_params=r.random() < 0.5,
                     backward_prefetch=r.choice(["pre", "post", "none"]), limit_all_gathers=r.random() < 0.5, cpu_offload=r.random() < 0.2)
    if strategy == "fsdp2":
        knobs.update(reshard_after_forward=r.random() < 0.5, cpu_offload=r.random() < 0.2, reduce_dtype=r.choice(["default", {"bf16-mixed": "bf16", "fp16-mixed": "fp16", "fp32": "default"}[precision]]))
    if framework == "deepspeed":
        knobs.update(reduce_bucket_size=r.choice([1e6, 2e8, 5e8]), overlap_comm=r.choice([None, True, False]), contiguous_gradients=r.random() < 0.8,
                     offload_optimizer={"device": r.choice(["none", "none", "cpu"])})
        precision = r.choice(["bf16-mixed", "fp16-mixed"])
    if strategy == "zero3":
        knobs.update(stage3_prefetch_bucket_size=r.choice([0, 1e6, 5e7]), stage3_param_persistence_threshold=r.choice([0, 1e5]), sub_group_size=r.choice([1e8, 1e9]),
                     stage3_max_live_parameters=r.choice([1e8, 1e9]), stage3_max_reuse_distance=r.choice([0, 1e9]))
        if knobs["offload_optimizer"]["device"] == "cpu":
            knobs["offload_param"] = {"device": r.choice(["none", "cpu"])}
    return {"model": r.choice(["gpt2", "llama-3.2-1b", SMALL]), "framework": framework,
            "cluster": {"gpu": "A100-80GB", "gpus_per_node": 1 if strategy == "single" else 4, "nodes": nodes}, "strategy": knobs,
            "train": {"micro_batch": r.choice([1, 2]), "grad_accum": r.choice([1, 2]), "seq_len": 64, "precision": precision,
                      "optimizer": "adamw" if framework == "deepspeed" else r.choice(["adamw", "adamw-fused"]), "recompute": r.choice(["none", "full"]),
                      "grad_clip": r.choice([0, 1])}}


def reads_back(job, folder):
    said = emitted(folder, job)
    want = predicted(os.path.join(folder, "planned.json"))
    assert predicted(os.path.join(folder, "job.json")) == want, "job.json is another job"
    whole = json.load(open(os.path.join(folder, "job.json")))
    read = ["job"]
    for name, key in (("ds_config.json", "deepspeed_config"), ("accelerate.yaml", "accelerate_config")):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            assert name == "ds_config.json" or "no accelerate.yaml: " in said, said
            continue
        again = {k: v for k, v in whole.items() if k not in ("strategy", "framework")}
        again[key] = path
        # what the file states is taken from it, not from the job
        for k in ("precision", "micro_batch", "grad_accum", "global_batch", "grad_clip", "lr", "beta1", "beta2", "eps", "weight_decay") if key == "deepspeed_config" \
                else ("precision", "grad_accum"):
            again["train"].pop(k)
        if key == "accelerate_config":
            again["train"].pop("global_batch", None)
            again["cluster"] = {"gpu": whole["cluster"]["gpu"]}
        got = predicted(write(folder, "again.json", again))
        assert got == want, "%s reads back to another job: %s" % (name, {k: (got[k], want[k]) for k in want if got.get(k) != want[k]})
        whole = json.load(open(os.path.join(folder, "job.json")))
        read.append(name)
    return read


def property_of_reading_back():
    r, seen = random.Random(20), {}
    for number in range(60):
        job = random_job(r)
        with tempfile.TemporaryDirectory() as folder:
            try:
                for name in reads_back(job, folder):
                    seen[name] = seen.get(name, 0) + 1
            except AssertionError as error:
                sys.exit("job %d: %s\n%s" % (number, error, json.dumps(job)))
    assert seen["ds_config.json"] >= 15 and seen["accelerate.yaml"] >= 30, seen
    print("60 random jobs read back, from", seen)


# ---- what cannot be written ----


def refusals():
    with tempfile.TemporaryDirectory() as folder:
        base = {"model": SMALL, "framework": "pytorch", "cluster": {"gpu": "H100"}, "strategy": {"name": "single"}, "train": {"seq_len": 32, "micro_batch": 1}}
        said = emitted(folder, dict(base, train=dict(base["train"], precision="fp8-mixed")))
        assert "no train.py: train.precision fp8-mixed" in said and not os.path.exists(os.path.join(folder, "train.py")), said
        said = emitted(folder, dict(base, model="mixtral-8x7b"))
        assert "no train.py: the model's experts" in said, said
        bad = subprocess.run([SHARDFIT, "predict", write(folder, "own.json", dict(base, framework="shardfit", train=dict(base["train"], precision="bf16-mixed"))), "--emit", folder],
                             capture_output=True, text=True)
        assert bad.returncode == 2 and "shardfit run" in bad.stderr, bad
        bad = subprocess.run([SHARDFIT, "predict", write(folder, "job.json", base), "--emit", "/proc/nowhere"], capture_output=True, text=True)
        assert bad.returncode == 2 and "/proc/nowhere" in bad.stderr, bad
    print("refused by name: fp8, experts, the own executor, a folder that cannot be made")


# ---- the program ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(folder, ranks):
    env = dict(os.environ, SHARDFIT_CPU="1", OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(ranks))
    outcome = os.path.join(folder, "outcome.json")
    if os.path.exists(outcome):
        os.remove(outcome)
    all_ranks = [subprocess.Popen([sys.executable, os.path.join(folder, "train.py")], env=dict(env, RANK=str(i), LOCAL_RANK=str(i)), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for i in range(ranks)]
    words = [p.communicate(timeout=240)[0] for p in all_ranks]
    assert os.path.exists(outcome), "train.py failed: " + words[0]
    return json.load(open(outcome))


def counts(outcome):
    return sorted((c["collective"], c["calls"], c["bytes_per_rank"]) for c in outcome["communication"])


def small_job(strategy="ddp", ranks=2, model=SMALL, **train):
    return {"model": model, "framework": "pytorch", "cluster": {"gpu": "A100-80GB", "gpus_per_node": ranks}, "strategy": {"name": strategy},
            "train": dict({"micro_batch": 2, "grad_accum": 2, "seq_len": 32, "precision": "fp32", "steps": 2}, **train)}


def trains_as_planned():
    losses = {}
    for name, job in (("single", small_job("single", 1, grad_accum=4)), ("ddp", small_job()), ("ddp, recompute", small_job(recompute="full", recompute_share=0.5)),
                      ("ddp, accumulating with reductions", small_job(sync_each_micro_step=True))):
        with tempfile.TemporaryDirectory() as folder:
            emitted(folder, job)
            outcome = run(folder, job["cluster"]["gpus_per_node"])
            want = counts(predicted(os.path.join(folder, "job.json")))
            assert counts(outcome) == want, "%s: counted %s, predicted %s" % (name, counts(outcome), want)
            said = shardfit("validate", "--measured", os.path.join(folder, "outcome.json"), "--output", os.path.join(folder, "report"))
            assert "byte and call counts are equal" in said or not want, said
            losses[name] = outcome["losses"]
    # the same rows through the same weights: only the order of sums differs (float32, some 1e3 terms: well below 1e-4)
    for name, values in losses.items():
        assert all(abs(a - b) < 1e-4 for a, b in zip(values, losses["single"])), (name, values, losses["single"])
    assert losses["single"][-1] < losses["single"][0]
    for name, model in FAMILIES.items():
        with tempfile.TemporaryDirectory() as folder:
            emitted(folder, small_job("single", 1, model, attention="eager", seq_len=16, steps=1))
            run(folder, 1)  # train.py itself holds its parameters against shardfit's count
    print("trained on the CPU:", ", ".join(losses), "and the families", ", ".join(FAMILIES))


def counts_are_those_of_current_versions():
    """What train.py counted with current PyTorch and DeepSpeed (tests/oracle/emitted.py). Zero-3's gathers are compared in bytes: on the CPU
    DeepSpeed fetches parameter by parameter, and a GPU's are coalesced."""
    fixture = json.load(open(os.path.join(DATA, "oracle", "emitted.json")))
    by_strategy = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in fixture["cases"]:
            said = predicted(write(folder, "job.json", case["job"]))
            got = {c["collective"]: [c["calls"], c["bytes_per_rank"]] for c in said["communication"]}
            want = case["counted"]
            if case["job"]["strategy"]["name"] == "zero3":
                got["all_gather"][0] = want["all_gather"][0]
            assert got == want, "%s: predicted %s, counted %s" % (case["job"]["strategy"], got, want)
            key = (case["job"]["train"]["precision"], case["job"]["strategy"]["name"])
            by_strategy.setdefault(key[0], []).append(case["losses"])
    # one batch, one model: the losses of fp32 agree to the order of sums, those of 16-bit products to their rounding
    # (2^-8 of products of 0.02 summed to a loss of 7: a few 1e-4)
    for precision, losses in by_strategy.items():
        assert all(abs(a - b) < (1e-4 if precision == "fp32" else 2e-3) for one in losses for a, b in zip(one, losses[0])), (precision, losses)
    print(len(fixture["cases"]), "jobs counted as predicted by", fixture["versions"])


property_of_reading_back()
refusals()
counts_are_those_of_current_versions()
if importlib.util.find_spec("torch") is None:
    print("not trained: this Python has no PyTorch (Debian: python3-torch)")
else:
    trains_as_planned()
