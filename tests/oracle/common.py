"""Shared by the oracle scripts: model shapes, the phantom device, and the writing of fixtures.

A script runs each of its cases in a forked child, so that every case starts with a fresh device, allocator and process group.
"""
import ctypes
import json
import os
import platform
import sys
import tempfile
import traceback
from pathlib import Path

ORACLE = Path(__file__).resolve().parent
DATA = ORACLE.parent / "data" / "oracle"

# Model shapes. The small ones are odd on purpose: grouped heads, sizes that no world size divides, tied and untied heads.
LLAMA = {
    "llama-tiny": dict(hidden_size=96, num_attention_heads=6, num_key_value_heads=2, head_dim=16, intermediate_size=250,
                       num_hidden_layers=3, vocab_size=1003, tie_word_embeddings=False),
    "llama-tiny-tied": dict(hidden_size=96, num_attention_heads=6, num_key_value_heads=6, head_dim=16, intermediate_size=250,
                            num_hidden_layers=3, vocab_size=1003, tie_word_embeddings=True),
    "llama-odd-head": dict(hidden_size=60, num_attention_heads=3, num_key_value_heads=1, head_dim=20, intermediate_size=97,
                           num_hidden_layers=2, vocab_size=499, tie_word_embeddings=False),
    "llama-odd": dict(hidden_size=54, num_attention_heads=3, num_key_value_heads=1, head_dim=18, intermediate_size=77,
                      num_hidden_layers=2, vocab_size=499, tie_word_embeddings=False),
    "llama-3.2-1b": dict(hidden_size=2048, num_attention_heads=32, num_key_value_heads=8, head_dim=64, intermediate_size=8192,
                         num_hidden_layers=16, vocab_size=128256, tie_word_embeddings=True),
    "llama-2-7b-2layers": dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=32, head_dim=128, intermediate_size=11008,
                               num_hidden_layers=2, vocab_size=32000, tie_word_embeddings=False),
    "llama-2-7b": dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=32, head_dim=128, intermediate_size=11008,
                       num_hidden_layers=32, vocab_size=32000, tie_word_embeddings=False),
    "llama-3.1-8b": dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, head_dim=128, intermediate_size=14336,
                         num_hidden_layers=32, vocab_size=128256, tie_word_embeddings=False),
}
GPT2 = {
    "gpt2-tiny": dict(n_embd=80, n_head=5, n_layer=3, n_positions=64, vocab_size=503),
    "gpt2": dict(n_embd=768, n_head=12, n_layer=12, n_positions=1024, vocab_size=50257),
    "gpt2-medium": dict(n_embd=1024, n_head=16, n_layer=24, n_positions=1024, vocab_size=50257),
}


def shape_of(name):
    return {"model_type": "llama", **LLAMA[name]} if name in LLAMA else {"model_type": "gpt2", **GPT2[name]}


def build_model(name, attention="sdpa", dropout=0.0, dtype=None, device=None, **extra):
    """The Transformers model, in training mode, without a key/value cache (as a training loop runs it)."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    if os.environ.get("LD_PRELOAD"):
        # Transformers looks at the values of position_ids for packed sequences; on a device that computes nothing they are all
        # zero, which would look packed and add an attention mask. A batch of whole sequences gives None here.
        from transformers import masking_utils

        masking_utils.find_packed_sequence_indices = lambda position_ids: None
    use_cache = extra.pop("use_cache", False)
    if name in LLAMA:
        config = LlamaConfig(max_position_embeddings=8192, attention_dropout=dropout, use_cache=use_cache, **LLAMA[name], **extra)
        make = LlamaForCausalLM
    else:
        config = GPT2Config(attn_pdrop=dropout, embd_pdrop=dropout, resid_pdrop=dropout, use_cache=use_cache, **GPT2[name], **extra)
        make = GPT2LMHeadModel
    config._attn_implementation = attention
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or torch.float32)
    try:
        with torch.device(device or "cpu"):
            model = make(config)
    finally:
        torch.set_default_dtype(before)
    return model.train()


def checkpoint_layers(model):
    """Recompute every decoder layer, as Transformers does it (non-reentrant is its default)."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def layers_of(model):
    return model.model.layers if hasattr(model, "model") else model.transformer.h


# ---- the phantom device ------------------------------------------------------------------------------------------------


def phantom_library():
    return Path(os.environ.get("PHANTOM_LIBRARY", Path(sys.prefix) / "phantom" / "libcuda.so.1"))


def enter_phantom():
    """Starts this script again with the phantom device loaded before everything else."""
    library = str(phantom_library())
    if library in os.environ.get("LD_PRELOAD", ""):
        return
    if not Path(library).exists():
        sys.exit(f"{library} is missing: run `make -C tests/oracle/phantom VENV={sys.prefix}` first")
    os.environ["LD_PRELOAD"] = library
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.execv(sys.executable, [sys.executable, *sys.argv])


def mark(text):
    ctypes.CDLL(None).phantom_mark(text.encode())


def read_log(path):
    with open(path) as f:
        return [json.loads(line) for line in f if line.strip()]


def in_child(fn, *args, env=None, timeout=900):
    """fn(*args) in a forked child; its JSON-able result, or {"error": text}. The child's device log is its PHANTOM_LOG."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        log = Path(folder) / "log.jsonl"
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                os.environ["PHANTOM_LOG"] = str(log)
                os.environ.update({k: str(v) for k, v in (env or {}).items()})
                if str(phantom_library()) in os.environ.get("LD_PRELOAD", ""):
                    ctypes.CDLL(None).phantom_reload()
                result = fn(*args)
                out.write_text(json.dumps(result))
            except BaseException as error:  # the parent decides what a failed case means
                traceback.print_exc()
                out.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"[:400]}))
                code = 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        os.waitpid(pid, 0)
        return json.loads(out.read_text()) if out.exists() else {"error": "the child died"}


def device_log():
    return read_log(os.environ["PHANTOM_LOG"])


def init_world(world_size, backend="nccl"):
    """This process as rank 0 of world_size ranks; the others are taken to behave alike."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=world_size)
    phantom, c10d = ctypes.CDLL(None), dist.distributed_c10d
    split, make = dist.ProcessGroup.split_group, c10d._new_process_group_helper

    def split_group(self, ranks, *args, **kwargs):
        phantom.phantom_split(len(ranks), ranks.index(self.rank()))
        return split(self, ranks, *args, **kwargs)

    def new_helper(group_size, group_rank, *args, **kwargs):
        if group_rank is not None and group_rank >= 0:
            phantom.phantom_split(group_size, group_rank)
        return make(group_size, group_rank, *args, **kwargs)

    dist.ProcessGroup.split_group = split_group
    c10d._new_process_group_helper = new_helper


# ---- fixtures ----------------------------------------------------------------------------------------------------------


def versions(*names):
    from importlib.metadata import version

    return {"python": platform.python_version(), **{n: version(n) for n in names}}


def _flat(value):
    return not isinstance(value, (dict, list)) or all(not isinstance(v, (dict, list)) for v in (value.values() if isinstance(value, dict) else value))


def _dump(value, indent, width=190):
    text = json.dumps(value)
    if len(text) <= width - indent or not isinstance(value, (dict, list)) or not value:
        return text
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        body = [f"{json.dumps(k)}: {_dump(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(pad + b for b in body) + "\n" + " " * indent + "}"
    if all(not isinstance(v, (dict, list)) for v in value):  # long rows of numbers wrap
        lines, line = [], ""
        for piece in (json.dumps(v) for v in value):
            if line and len(line) + len(piece) > width - indent:
                lines.append(line)
                line = ""
            line += piece + ", "
        lines.append(line.rstrip(", "))
        return "[\n" + "\n".join(pad + l.rstrip() for l in lines) + "\n" + " " * indent + "]"
    return "[\n" + ",\n".join(pad + _dump(v, indent + 1) for v in value) + "\n" + " " * indent + "]"


def write_fixture(name, what, body, packages=("torch", "transformers"), device=None):
    DATA.mkdir(parents=True, exist_ok=True)
    record = {
        "what": what,
        "command": f"python3 tests/oracle/{Path(sys.argv[0]).name}",
        "versions": versions(*packages),
        "device": device or "phantom H100 80 GiB (kernels accepted, not run); see tests/oracle/README.md",
        **body,
    }
    path = DATA / name
    path.write_text(_dump(record, 0) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")
