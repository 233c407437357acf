"""The train.py that `shardfit predict --emit` writes, run with this Python's PyTorch and DeepSpeed on two CPU ranks (gloo).

Needs no GPU: collectives, bytes and losses are real; memory and time are not kept. Writes data/oracle/emitted.json, against which the tests hold
the predictions. Run: python tests/oracle/emitted.py path/to/shardfit
"""
import json
import os
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 320,
         "vocab_size": 1000, "max_position_embeddings": 64, "tie_word_embeddings": False}
CASES = [
    ("pytorch", {"name": "ddp"}, {}), ("pytorch", {"name": "ddp", "bucket_cap_mb": 1}, {}), ("pytorch", {"name": "ddp", "gradient_as_bucket_view": True}, {"recompute": "full"}),
    ("pytorch", {"name": "fsdp"}, {}), ("pytorch", {"name": "fsdp", "sharding": "shard_grad_op"}, {}), ("pytorch", {"name": "fsdp"}, {"precision": "bf16-mixed"}),
    ("pytorch", {"name": "fsdp", "reduce_dtype": "fp32"}, {"precision": "bf16-mixed", "recompute": "full"}), ("pytorch", {"name": "fsdp", "use_orig_params": True}, {}),
    ("pytorch", {"name": "fsdp"}, {"sync_each_micro_step": False}), ("pytorch", {"name": "fsdp", "sharding": "no_shard"}, {}),
    ("pytorch", {"name": "fsdp2"}, {}), ("pytorch", {"name": "fsdp2", "reshard_after_forward": False}, {}), ("pytorch", {"name": "fsdp2"}, {"precision": "bf16-mixed"}),
    ("pytorch", {"name": "fsdp2", "reduce_dtype": "bf16"}, {"precision": "bf16-mixed", "recompute": "full"}), ("pytorch", {"name": "fsdp2"}, {"sync_each_micro_step": False}),
    ("deepspeed", {"name": "zero1"}, {"precision": "bf16-mixed"}), ("deepspeed", {"name": "zero2"}, {"precision": "bf16-mixed"}),
    ("deepspeed", {"name": "zero3"}, {"precision": "bf16-mixed"}),
    ("deepspeed", {"name": "zero2", "reduce_bucket_size": 100000}, {"precision": "bf16-mixed"}),
    ("deepspeed", {"name": "zero3", "stage3_param_persistence_threshold": 0}, {"precision": "bf16-mixed"}),
]


def main():
    shardfit = os.path.abspath(sys.argv[1])
    cases = []
    for framework, knobs, train in CASES:
        job = {"model": MODEL, "framework": framework, "cluster": {"gpu": "A100-80GB", "gpus_per_node": 2}, "strategy": knobs,
               "train": dict({"micro_batch": 2, "grad_accum": 2, "seq_len": 32, "precision": "fp32", "steps": 3}, **train)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "planned.json")
            json.dump(job, open(path, "w"))
            subprocess.run([shardfit, "predict", path, "--emit", folder], check=True, stdout=subprocess.DEVNULL)
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                port = s.getsockname()[1]
            env = dict(os.environ, SHARDFIT_CPU="1", DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2")
            ranks = [subprocess.Popen([sys.executable, os.path.join(folder, "train.py")], env=dict(env, RANK=str(i), LOCAL_RANK=str(i)), stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True) for i in range(2)]
            words = [p.communicate(timeout=400)[0] for p in ranks]
            try:
                outcome = json.load(open(os.path.join(folder, "outcome.json")))
            except FileNotFoundError:
                sys.exit("%s %s failed:\n%s" % (knobs, train, words[0]))
        counted = {c["collective"]: [c["calls"], c["bytes_per_rank"]] for c in outcome["communication"]}
        cases.append({"job": job, "counted": counted, "losses": [round(x, 5) for x in outcome["losses"]]})
        print(knobs, train, counted, flush=True)
        versions = {"torch": outcome["provenance"]["torch"]}
    try:
        import deepspeed
        versions["deepspeed"] = deepspeed.__version__
    except ImportError:
        pass
    fixture = {"format": "cases: the job; counted: collective -> [calls, bytes of the whole array] of one rank in one step after warming up; losses of the steps, mean over ranks",
               "command": "python tests/oracle/emitted.py SHARDFIT", "versions": versions, "device": "cpu, gloo, 2 ranks", "cases": cases}
    with open(os.path.join(HERE, "..", "data", "oracle", "emitted.json"), "w") as file:
        json.dump(fixture, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
