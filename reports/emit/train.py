"""Trains the job below with PyTorch on synthetic tokens and writes what it measured.

Written by shardfit; needs PyTorch alone, and DeepSpeed for ZeRO. launch.sh starts it; the outcome goes to outcome.json beside it
(or to the path given) and `shardfit validate --measured outcome.json` compares it with the prediction.
"""
import contextlib
import functools
import json
import os
import statistics
import sys
import time
import zlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

JOB = json.loads(r"""@JOB@""")
MODEL = json.loads(r"""@MODEL@""")
DEEPSPEED = json.loads(r"""@DEEPSPEED@""")
TRAIN, KNOBS = JOB["train"], JOB["strategy"]
STRATEGY, FRAMEWORK = KNOBS["name"], JOB["framework"]
RANK, WORLD, LOCAL = (int(os.environ.get(k, d)) for k, d in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")))
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", LOCAL) if CUDA else torch.device("cpu")
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PRECISION = TRAIN["precision"]
HALF = torch.float16 if PRECISION.startswith("fp16") else torch.bfloat16 if PRECISION.startswith("bf16") else torch.float32
WARMUP = 3


def fail(text):
    sys.exit("train.py: " + text)


# ---- what goes over the wire: calls and bytes of the whole array, as NCCL's tests count them ----

COUNTED = {}
counting = False


def count(collective, nbytes, calls=1):
    row = COUNTED.setdefault(collective, [0, 0])
    row[0] += calls
    row[1] += nbytes


inside = [0]


def watch(name, collective, whole):
    """Counts calls of torch.distributed's functions; one may call another of them."""
    plain = getattr(dist, name, None)
    if plain is None:
        return

    @functools.wraps(plain)
    def watched(*args, **kw):
        if counting and not inside[0]:
            tensors = whole(args, kw)
            count(collective, sum(t.numel() * t.element_size() for t in (tensors if isinstance(tensors, list) else [tensors])))
        inside[0] += 1
        try:
            return plain(*args, **kw)
        finally:
            inside[0] -= 1

    setattr(dist, name, watched)


def argument(index, *names):
    return lambda args, kw: args[index] if len(args) > index else next(kw[n] for n in names if n in kw)


for _name in ("all_gather_single", "all_gather_into_tensor", "_all_gather_base"):
    watch(_name, "all_gather", argument(0, "output_tensor", "output"))
for _name in ("reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base"):
    watch(_name, "reduce_scatter", argument(1, "input", "input_tensor"))
watch("all_gather", "all_gather", argument(0, "tensor_list"))
watch("all_reduce", "all_reduce", argument(0, "tensor"))

# ---- the model ----


def norm(width):
    kind, eps = MODEL["norm"], MODEL["norm_eps"]
    if kind == "rmsnorm":
        return RMSNorm(width, eps)
    layer = nn.LayerNorm(width, eps=eps, elementwise_affine=kind != "plain")
    if kind != "plain" and not MODEL["norm_bias"]:
        layer.bias = None
    return layer


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


ACTIVATIONS = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "gelu_erf": F.gelu, "relu": F.relu, "silu": F.silu,
               "relu2": lambda x: F.relu(x).square()}


def rotate(x, cos, sin):
    d = cos.shape[-1]
    part, rest = x[..., :d], x[..., d:]
    half = torch.cat((-part[..., d // 2:], part[..., :d // 2]), -1)
    part = part * cos + half * sin
    return torch.cat((part, rest), -1) if rest.shape[-1] else part


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        h, self.heads, self.kv, self.dim = MODEL["hidden"], MODEL["n_heads"], MODEL["n_kv_heads"], MODEL["head_dim"]
        widths, bias = (self.heads * self.dim, self.kv * self.dim, self.kv * self.dim), MODEL["qkv_bias"]
        self.widths = widths
        if MODEL["fused_qkv"]:
            self.qkv = nn.Linear(h, sum(widths), bias=bias)
        else:
            self.q, self.k, self.v = (nn.Linear(h, w, bias=bias) for w in widths)
        self.out = nn.Linear(self.heads * self.dim, h, bias=MODEL["out_bias"])
        if MODEL["qk_norm"]:
            self.q_norm, self.k_norm = norm(self.dim), norm(self.dim)

    def forward(self, x, cos, sin, bias):
        b, s, _ = x.shape
        q, k, v = self.qkv(x).split(self.widths, -1) if MODEL["fused_qkv"] else (self.q(x), self.k(x), self.v(x))
        q, k, v = (t.view(b, s, -1, self.dim).transpose(1, 2) for t in (q, k, v))
        if MODEL["qk_norm"]:
            q, k = self.q_norm(q), self.k_norm(k)
        if cos is not None:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.kv != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        if TRAIN["attention"] != "eager" and bias is None and hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * self.dim ** -0.5
            mask = torch.full((s, s), float("-inf"), device=x.device, dtype=scores.dtype).triu(1)
            scores = scores + mask if bias is None else scores + (mask + bias).to(scores.dtype)
            y = torch.softmax(scores, -1, dtype=torch.float32).to(v.dtype) @ v
        return self.out(y.transpose(1, 2).reshape(b, s, -1))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        h, f, bias = MODEL["hidden"], MODEL["ffn_hidden"], MODEL["mlp_bias"]
        self.act = ACTIVATIONS[MODEL["activation"]]
        if MODEL["gated"] and MODEL["fused_gate_up"]:
            self.gate_up = nn.Linear(h, 2 * f, bias=bias)
        else:
            self.gate = nn.Linear(h, f, bias=bias) if MODEL["gated"] else None
            self.up = nn.Linear(h, f, bias=bias)
        self.down = nn.Linear(f, h, bias=bias)

    def forward(self, x):
        if MODEL["gated"] and MODEL["fused_gate_up"]:
            gate, up = self.gate_up(x).chunk(2, -1)
            return self.down(self.act(gate) * up)
        return self.down(self.act(self.gate(x)) * self.up(x)) if self.gate is not None else self.down(self.act(self.up(x)))


def save_every_second_product():
    """torchtitan's selective policy: attention's output and every second product stay."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    keep = {torch.ops.aten._scaled_dot_product_flash_attention.default, torch.ops.aten._scaled_dot_product_efficient_attention.default}
    seen = {"forward": 0, "again": 0}

    def policy(ctx, op, *args, **kw):
        if op == torch.ops.aten.mm.default:
            mode = "again" if ctx.is_recompute else "forward"
            seen[mode] += 1
            return CheckpointPolicy.MUST_SAVE if seen[mode] % 2 else CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if op in keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Block(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.norm1 = norm(MODEL["hidden"])
        self.attention, self.mlp = Attention(), MLP()
        self.norm2 = norm(MODEL["hidden"]) if MODEL["norms_per_block"] > 1 else None
        n, share = MODEL["n_layers"], TRAIN["recompute_share"]
        taken = int(share * n + 0.5)
        self.recompute = TRAIN["recompute"] if (number + 1) * taken // n > number * taken // n or TRAIN["recompute"] == "selective" else "none"

    def step(self, x, cos, sin, bias):
        normed = self.norm1(x)
        if MODEL["parallel_block"]:
            return x + self.attention(normed, cos, sin, bias) + self.mlp(self.norm2(x) if self.norm2 is not None else normed)
        x = x + self.attention(normed, cos, sin, bias)
        return x + self.mlp(self.norm2(x))

    def forward(self, x, cos, sin, bias):
        if self.recompute == "none" or not torch.is_grad_enabled():
            return self.step(x, cos, sin, bias)
        more = {"context_fn": save_every_second_product} if self.recompute == "selective" else {}
        return checkpoint(self.step, x, cos, sin, bias, use_reentrant=False, **more)


def build():
    """A model; its parameters are those that were planned (DeepSpeed keeps the number of those that it has sharded)."""
    model = Model()
    parameters = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())
    if parameters != MODEL["parameters"]:
        fail("the model has %d parameters, not the %d that were planned" % (parameters, MODEL["parameters"]))
    return model


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        h = MODEL["hidden"]
        self.embed = nn.Embedding(MODEL["vocab"], h)
        self.positions = nn.Embedding(MODEL["position_rows"], h) if MODEL["position"] == "learned" else None
        self.embed_norm = norm(h) if MODEL["embedding_norm"] else None
        self.blocks = nn.ModuleList([Block(i) for i in range(MODEL["n_layers"])])
        self.norm = norm(h) if not MODEL["no_final_norm"] else None
        self.head = nn.Linear(h, MODEL["vocab"], bias=MODEL["head_bias"])
        if MODEL["tied"]:
            self.head.weight = self.embed.weight

    def tables(self, s, x):
        if MODEL["position"] == "rotary":
            d = MODEL["rotary_dim"]
            rate = MODEL["rope_theta"] ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d)
            angle = torch.outer(torch.arange(s, device=x.device, dtype=torch.float32), rate).repeat(1, 2)
            return angle.cos().to(x.dtype), angle.sin().to(x.dtype), None
        if MODEL["position"] == "alibi":
            slope = 2.0 ** (-8.0 * torch.arange(1, MODEL["n_heads"] + 1, device=x.device) / MODEL["n_heads"])
            away = torch.arange(s, device=x.device)[None, :] - torch.arange(s, device=x.device)[:, None]
            return None, None, slope[:, None, None] * away
        return None, None, None

    def forward(self, tokens, targets):
        s = tokens.shape[1]
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(s, device=tokens.device))
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        cos, sin, bias = self.tables(s, x)
        for block in self.blocks:
            x = block(x, cos, sin, bias)
        if self.norm is not None:
            x = self.norm(x)
        return self.loss(x, targets)

    def loss(self, x, targets):
        kind, x, targets = TRAIN["loss"], x.flatten(0, 1), targets.flatten()
        if kind == "fused":
            from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
            return LigerFusedLinearCrossEntropyLoss()(self.head.weight, x, targets)
        if kind == "chunked":
            parts = zip(x.chunk(8), targets.chunk(8))
            return sum(F.cross_entropy(self.head(a).float(), b, reduction="sum") for a, b in parts) / targets.numel()
        logits = self.head(x)
        if kind == "kernel":
            from flash_attn.losses.cross_entropy import CrossEntropyLoss
            return CrossEntropyLoss(inplace_backward=True)(logits, targets)
        return F.cross_entropy(logits.float(), targets)


def first_values(name, like):
    """Of the whole parameter: the same on every rank and under every strategy."""
    if "norm" in name:
        return torch.zeros_like(like) if name.endswith("bias") else torch.ones_like(like)
    if name.endswith("bias"):
        return torch.zeros_like(like)
    g = torch.Generator(device=like.device)
    g.manual_seed(zlib.crc32(name.encode()) + TRAIN["seed"])
    return torch.empty(like.shape, device=like.device, dtype=torch.float32).normal_(0, 0.02, generator=g).to(like.dtype)


# ---- strategies ----


def fill(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(first_values(name, p))
    return model


def on_device(dtype):
    model = fill(build().to(dtype).to(DEVICE))
    if TRAIN["compile"]:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = torch.compile(block)
    return model


def held_dtype():
    return HALF if PRECISION.endswith("pure") else torch.float32


def make_plain():
    model = on_device(held_dtype())
    if STRATEGY == "dp":
        return nn.DataParallel(model), lambda on: contextlib.nullcontext()
    if STRATEGY == "single":
        return model, lambda on: contextlib.nullcontext()
    ddp = nn.parallel.DistributedDataParallel(
        model, device_ids=[LOCAL] if CUDA else None, **({} if KNOBS["bucket_cap_mb"] == 25 else {"bucket_cap_mb": KNOBS["bucket_cap_mb"]}), static_graph=KNOBS["static_graph"],
        gradient_as_bucket_view=KNOBS["gradient_as_bucket_view"], find_unused_parameters=KNOBS["find_unused_parameters"],
        broadcast_buffers=KNOBS["broadcast_buffers"])
    if KNOBS["comm_hook"] != "none":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        ddp.register_comm_hook(None, {"fp16_compress": default_hooks.fp16_compress_hook, "bf16_compress": default_hooks.bf16_compress_hook}[KNOBS["comm_hook"]])
    return ddp, lambda on: contextlib.nullcontext() if on else ddp.no_sync()


def mixed(kind):
    param = TYPES.get(KNOBS["param_dtype"], HALF if PRECISION.endswith("mixed") and HALF != torch.float32 else None)
    reduce = TYPES.get(KNOBS["reduce_dtype"])
    return kind(param_dtype=param, reduce_dtype=reduce) if param is not None or reduce is not None else None


def make_fsdp():
    from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy
    wrap = {"block": functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
            "size": functools.partial(size_based_auto_wrap_policy, min_num_params=int(KNOBS["min_num_params"])), "none": None}[KNOBS["auto_wrap"]]
    sharding = {"full_shard": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP", "no_shard": "NO_SHARD", "hybrid_shard": "HYBRID_SHARD",
                "_hybrid_shard_zero2": "_HYBRID_SHARD_ZERO2"}[KNOBS["sharding"]]
    prefetch = {"pre": BackwardPrefetch.BACKWARD_PRE, "post": BackwardPrefetch.BACKWARD_POST, "none": None}[KNOBS["backward_prefetch"]]
    with torch.device("meta"):
        model = build().to(held_dtype())
    names = {id(m): n for n, m in model.named_modules()}

    def materialise(module):
        module.to_empty(device=DEVICE, recurse=False)
        with torch.no_grad():
            for name, p in module.named_parameters(recurse=False):
                p.copy_(first_values((names[id(module)] + "." + name).lstrip("."), p))

    if MODEL["tied"]:  # one tensor of two modules stays one only if it is real when it is flattened
        model = fill(build().to(held_dtype()))
    fsdp = FullyShardedDataParallel(
        model, sharding_strategy=ShardingStrategy[sharding], auto_wrap_policy=wrap, mixed_precision=mixed(MixedPrecision), backward_prefetch=prefetch,
        forward_prefetch=KNOBS["forward_prefetch"], limit_all_gathers=KNOBS["limit_all_gathers"], use_orig_params=KNOBS["use_orig_params"],
        cpu_offload=CPUOffload(offload_params=True) if KNOBS["cpu_offload"] else None, device_id=DEVICE,
        param_init_fn=None if MODEL["tied"] else materialise)
    return fsdp, lambda on: contextlib.nullcontext() if on else fsdp.no_sync()


def make_fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import DTensor
    hybrid = KNOBS["sharding"] == "hybrid_shard" and WORLD > 1
    replicas = KNOBS["replicate"] or JOB["cluster"]["nodes"]
    mesh = init_device_mesh(DEVICE.type, (replicas, WORLD // replicas) if hybrid and replicas > 1 else (WORLD,))
    reshard = KNOBS["reshard_after_forward"]
    more = {"mesh": mesh}
    if mixed(MixedPrecisionPolicy) is not None:
        more["mp_policy"] = mixed(MixedPrecisionPolicy)
    if KNOBS["cpu_offload"]:
        more["offload_policy"] = CPUOffloadPolicy(pin_memory=KNOBS["pin_memory"])
    with torch.device("meta"):
        model = build().to(held_dtype())
    if KNOBS["auto_wrap"] == "block":
        for block in model.blocks:
            if TRAIN["compile"]:
                block.compile()
            fully_shard(block, reshard_after_forward=reshard, **more)
    fully_shard(model, **more)  # the root's own parameters stay gathered for backward, as is FSDP2's default
    model.to_empty(device="cpu" if KNOBS["cpu_offload"] else DEVICE)
    with torch.no_grad():
        for name, p in model.named_parameters():
            whole = first_values(name, torch.empty(p.shape, dtype=p.dtype, device=DEVICE))
            local = whole
            if isinstance(p, DTensor):
                shard = mesh.size(-1)
                parts = whole.chunk(shard, 0)
                at = mesh.get_local_rank(mesh.ndim - 1)
                local = parts[at] if at < len(parts) else whole[:0]
                p.to_local().copy_(local)
            else:
                p.copy_(local)

    @contextlib.contextmanager
    def sync(on):
        model.set_requires_gradient_sync(on)
        yield

    return model, sync


def make_optimizer(model):
    kind, groups = TRAIN["optimizer"], []
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": TRAIN["weight_decay"]}] + ([{"params": rest, "weight_decay": 0.0}] if rest else [])
    common = {"lr": TRAIN["lr"], "betas": (TRAIN["beta1"], TRAIN["beta2"]), "eps": TRAIN["eps"]}
    if kind == "adamw":
        return torch.optim.AdamW(groups, **common)
    if kind == "adamw-fused":
        return torch.optim.AdamW(groups, fused=True, **common)
    if kind == "adamw-foreach":
        return torch.optim.AdamW(groups, foreach=True, **common)
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=TRAIN["lr"])
    if kind == "adafactor":
        return torch.optim.Adafactor(groups, lr=TRAIN["lr"])
    if kind == "adamw-8bit":
        import bitsandbytes
        return bitsandbytes.optim.AdamW8bit(groups, **common)
    fail("optimizer %s has no class here" % kind)


def clip(model):
    most = TRAIN["grad_clip"]
    if most > 0:
        (model.clip_grad_norm_ if hasattr(model, "clip_grad_norm_") else functools.partial(nn.utils.clip_grad_norm_, model.parameters()))(most)


def batch(step, micro):
    """Rows are numbered over the job, so that every strategy sees the same ones."""
    rows, s = TRAIN["micro_batch"], TRAIN["seq_len"]
    if STRATEGY == "dp":
        rows *= max(1, torch.cuda.device_count())
    first = ((step * TRAIN["grad_accum"] + micro) * WORLD + RANK) * rows
    out = []
    for row in range(first, first + rows):
        g = torch.Generator().manual_seed(TRAIN["seed"] + row)
        out.append(torch.randint(0, MODEL["vocab"], (s + 1,), generator=g))
    x = torch.stack(out).to(DEVICE, non_blocking=True)
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def plain_stepper(model, sync):
    optimizer = make_optimizer(model)
    autocast = PRECISION.endswith("autocast") or (PRECISION.endswith("mixed") and STRATEGY in ("single", "dp", "ddp"))
    scaled = PRECISION == "fp16-mixed" and CUDA
    scaler = None
    if scaled:
        if STRATEGY == "fsdp":
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler as Scaler
        else:
            from torch.cuda.amp import GradScaler as Scaler
        scaler = Scaler()

    def step(number):
        total, n = 0.0, TRAIN["grad_accum"]
        for micro in range(n):
            tokens, targets = batch(number, micro)
            with sync(TRAIN["sync_each_micro_step"] or micro == n - 1):
                with torch.autocast(DEVICE.type, dtype=HALF) if autocast and HALF != torch.float32 else contextlib.nullcontext():
                    loss = model(tokens, targets).mean() / n
                (scaler.scale(loss) if scaler else loss).backward()
            total = total + loss.detach()
        if scaler:
            scaler.unscale_(optimizer)
        clip(model)
        (scaler.step(optimizer), scaler.update()) if scaler else optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


def deepspeed_stepper():
    import deepspeed
    deepspeed.init_distributed("nccl" if CUDA else "gloo")
    stage3 = DEEPSPEED["zero_optimization"]["stage"] == 3
    with deepspeed.zero.Init(config_dict_or_path=DEEPSPEED) if stage3 else contextlib.nullcontext():
        model = build()
    for name, p in model.named_parameters():
        with deepspeed.zero.GatheredParameters([p], modifier_rank=0) if stage3 else contextlib.nullcontext():
            if RANK == 0 or not stage3:
                with torch.no_grad():
                    p.copy_(first_values(name, p.data))
    client = None if "optimizer" in DEEPSPEED else make_optimizer(model)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), optimizer=client, config=DEEPSPEED)

    def step(number):
        total, n = 0.0, TRAIN["grad_accum"]
        for micro in range(n):
            tokens, targets = batch(number, micro)
            loss = engine(tokens, targets)
            engine.backward(loss)
            engine.step()
            total = total + loss.detach() / n
        return total

    return step, engine


# ---- measuring ----


def synchronise():
    if CUDA:
        torch.cuda.synchronize()


def ddp_buckets(model):
    """The reducer's all-reduces do not pass through Python; it keeps the sizes of its rebuilt buckets."""
    data = model._get_ddp_logging_data()
    sizes = [int(x) for x in str(data.get("rebuilt_bucket_sizes", "") or data.get("bucket_sizes", "")).split(",") if x.strip()]
    half = 2 if KNOBS["comm_hook"] != "none" else 1
    steps = TRAIN["grad_accum"] if TRAIN["sync_each_micro_step"] else 1
    count("all_reduce", sum(sizes) // half * steps, len(sizes) * steps)


def main():
    global counting
    path = sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("--") else os.path.join(os.path.dirname(os.path.abspath(__file__)), "outcome.json")
    if CUDA:
        torch.cuda.set_device(DEVICE)
    if not CUDA and os.environ.get("SHARDFIT_CPU") != "1":
        fail("there is no GPU; SHARDFIT_CPU=1 runs it on the CPU, which checks everything but memory and time")
    want = JOB["cluster"]["gpus_per_node"] * JOB["cluster"]["nodes"]
    if STRATEGY != "dp" and WORLD != want:
        fail("the job is for %d ranks, but WORLD_SIZE is %d; launch.sh starts them" % (want, WORLD))
    if STRATEGY == "dp" and CUDA and torch.cuda.device_count() != want:
        fail("the job is for %d GPUs, but %d are visible" % (want, torch.cuda.device_count()))
    torch.backends.cuda.matmul.allow_tf32 = PRECISION == "tf32"
    if STRATEGY not in ("single", "dp"):
        dist.init_process_group("nccl" if CUDA else "gloo")
    if FRAMEWORK == "deepspeed":
        step, model = deepspeed_stepper()
    else:
        model, sync = {"fsdp": make_fsdp, "fsdp2": make_fsdp2}.get(STRATEGY, make_plain)()
        step = plain_stepper(model, sync)
    losses, times = [], []
    for number in range(WARMUP + TRAIN["steps"]):
        if number == WARMUP and CUDA:
            torch.cuda.reset_peak_memory_stats()
        counting = number == WARMUP
        synchronise()
        start = time.perf_counter()
        loss = step(number)
        synchronise()
        if number >= WARMUP:
            times.append(time.perf_counter() - start)
        counting = False
        losses.append(loss)
    losses = torch.stack([torch.as_tensor(x).float().reshape(()).to(DEVICE) for x in losses])
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(losses)
        losses /= WORLD
    if STRATEGY == "ddp" and FRAMEWORK == "pytorch" and WORLD > 1:
        ddp_buckets(model)
    memory = {}
    if CUDA:
        free, total = torch.cuda.mem_get_info()
        memory = {"capacity_bytes": total, "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                  "peak_reserved_bytes": torch.cuda.max_memory_reserved(), "device_used_bytes": total - free}
    step_s = statistics.median(times)
    tokens = TRAIN["micro_batch"] * TRAIN["grad_accum"] * TRAIN["seq_len"] * want
    outcome = {
        "schema": "shardfit-outcome-1", "kind": "measured", "job": JOB, "strategy": STRATEGY, "world_size": want, "fits": True,
        "verdict": "it ran", "memory": memory,
        "communication": [{"collective": name, "group": "world", "calls": calls, "bytes_per_rank": nbytes} for name, (calls, nbytes) in sorted(COUNTED.items())],
        "time": {"step_s": step_s, "step_s_min": min(times), "step_s_max": max(times)},
        "throughput": {"tokens_per_step": tokens, "tokens_per_s": tokens / step_s, "tokens_per_s_per_gpu": tokens / step_s / want},
        "losses": losses.tolist(), "steps": len(losses),
        "provenance": {"program": "train.py", "torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name() if CUDA else "cpu",
                       "host": os.uname().nodename, "warmup_steps": WARMUP},
    }
    if RANK == 0:
        with open(path + ".tmp", "w") as file:
            json.dump(outcome, file, indent=1)
        os.replace(path + ".tmp", path)
        print("step %.1f ms, %.0f tokens/s, loss %.4f to %.4f; outcome in %s" % (1e3 * step_s, tokens / step_s, losses[0], losses[-1], path))
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
