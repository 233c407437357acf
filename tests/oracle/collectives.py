"""collectives.json: every collective that DDP, FSDP1 and FSDP2 issue, in order, with bytes, from construction to the third step.

Each case is rank 0 of a world of the given size on the phantom device; rows are calls as they reach NCCL. Tables of flat-parameter sizes
and shard shapes go with them.
"""
import sys

import common

COLUMNS = ["where", "op", "ranks", "dtype", "input_bytes", "output_bytes", "reduce or root", "stream"]


def rows_of(log):
    """Rows per section, from marks "section NAME" and "at PLACE".

    An all-gather of a list of tensors reaches NCCL as one broadcast per root inside a group: one row, "all_gather_list".
    """
    sections, place, pending = {}, "", -1
    rows = sections.setdefault("before", [])
    for line in log:
        if line["event"] == "mark":
            kind, _, text = line["name"].partition(" ")
            if kind == "section":
                rows, place = sections.setdefault(text, []), ""
            else:
                place = text
        elif line["event"] == "nccl":
            ranks, nbytes, op = line["ranks"], line["bytes"], line["op"]
            given = nbytes * ranks if op == "reduce_scatter" else nbytes
            got = nbytes * ranks if op == "all_gather" else nbytes
            detail = line.get("reduce", line.get("root"))
            if op == "broadcast" and line["group"] and rows and detail == pending and rows[-1][4] == given:
                pending += 1
                rows[-1][1], rows[-1][5], rows[-1][6] = "all_gather_list", given * pending, None
                continue
            pending = 1 if op == "broadcast" and line["group"] and detail == 0 else -1
            rows.append([place, op, ranks, line["dtype"], given, got, detail, line["stream"]])
    return {k: v for k, v in sections.items() if v or k != "before"}


def watch(model):
    """Marks in the log: the layer whose forward or backward is running."""
    def enter(name):
        return lambda module, args: common.mark(f"at forward {name}")

    def leave(name):
        def hook(module, args, output):
            tensor = output[0] if isinstance(output, tuple) else output
            if tensor.requires_grad:
                tensor.register_hook(lambda grad: common.mark(f"at backward {name}"))
        return hook

    for i, layer in enumerate(common.layers_of(model)):
        layer.register_forward_pre_hook(enter(f"layer {i}"))
        layer.register_forward_hook(leave(f"layer {i}"))
    for name, module in model.named_modules():
        if name in ("model.norm", "transformer.ln_f", "lm_head"):
            module.register_forward_pre_hook(enter(name))
            module.register_forward_hook(leave(name))


def dtype_of(name):
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, None: None}[name]


def wrap_ddp(model, case):
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model, device_ids=[0], **case.get("ddp", {}))
    hook = case.get("hook")
    if hook == "bf16_compress":
        wrapped.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif hook == "allreduce":
        wrapped.register_comm_hook(None, default_hooks.allreduce_hook)
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return wrapped


def block_class(model):
    return type(common.layers_of(model)[0])


def wrap_fsdp1(model, case):
    import functools
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    knobs = dict(case.get("fsdp", {}))
    knobs["sharding_strategy"] = ShardingStrategy[knobs.pop("sharding", "FULL_SHARD")]
    if "backward_prefetch" in knobs:
        knobs["backward_prefetch"] = None if knobs["backward_prefetch"] is None else BackwardPrefetch[knobs["backward_prefetch"]]
    if "mixed" in case:
        param, reduce = case["mixed"]
        knobs["mixed_precision"] = MixedPrecision(param_dtype=dtype_of(param), reduce_dtype=dtype_of(reduce))
    if "mesh" in case:
        knobs["device_mesh"] = init_device_mesh("cuda", tuple(case["mesh"]))
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={block_class(model)})
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=0, **knobs)


def wrap_fsdp2(model, case):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    shape = tuple(case.get("mesh", (case["world"],)))
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard") if len(shape) == 2 else ("shard",))
    knobs = {"mesh": mesh}
    if "mixed" in case:
        param, reduce = case["mixed"]
        knobs["mp_policy"] = MixedPrecisionPolicy(param_dtype=dtype_of(param), reduce_dtype=dtype_of(reduce))
    reshard = case.get("reshard", "default")
    block_reshard = {} if reshard == "default" else {"reshard_after_forward": reshard}
    llama = hasattr(model, "model")
    grouping = case.get("grouping", "blocks")
    if grouping == "torchtitan":
        embed, norm, head = (model.model.embed_tokens, model.model.norm, model.lm_head) if llama else (None, model.transformer.ln_f, model.lm_head)
        tied = head.weight is (embed.weight if embed is not None else model.transformer.wte.weight)
        if tied and llama:
            fully_shard([embed, norm, head], reshard_after_forward=False, **knobs)
        elif llama:
            fully_shard(embed, **knobs)
        for layer in common.layers_of(model):
            fully_shard(layer, **block_reshard, **knobs)
        if not tied:
            fully_shard([norm, head], reshard_after_forward=False, **knobs)
    else:
        for layer in common.layers_of(model):
            fully_shard(layer, **block_reshard, **knobs)
    fully_shard(model, **({"reshard_after_forward": case["root_reshard"]} if "root_reshard" in case else {}), **knobs)
    return model


def flat_parameters(wrapped):
    """FSDP1: [name of the unit, parameters, unsharded numel with padding, shard numel, padding inside, each parameter's numel]."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    out = []
    for name, module in wrapped.named_modules():
        if isinstance(module, FullyShardedDataParallel) and module._has_params:
            flat = module._flat_param
            whole = flat._unpadded_unsharded_size.numel()
            mask = flat._is_padding_mask
            pads = [n for n, pad in zip(flat._numels_with_padding, mask) if pad]
            out.append({"unit": name.replace("_fsdp_wrapped_module.", "").replace("_fsdp_wrapped_module", "") or "root",
                        "numel": whole, "shard_numel": flat._sharded_size.numel(),
                        "inner_padding": pads, "numels": [int(n) for n, pad in zip(flat._numels_with_padding, mask) if not pad],
                        "names": [p.module_name.replace("_fsdp_wrapped_module.", "") + "." + p.param_name if p.module_name else p.param_name
                                  for p in flat._param_infos]})
    return out


def run(case):
    import contextlib
    import torch

    common.init_world(case["world"])
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = common.build_model(case["model"], dtype=dtype_of(case.get("weights", "fp32")), device="cuda")
    if case.get("recompute"):
        common.checkpoint_layers(model)
    watch(model)
    common.mark("section init")
    kind = case["kind"]
    wrapped = {"ddp": wrap_ddp, "fsdp1": wrap_fsdp1, "fsdp2": wrap_fsdp2}[kind](model, case)
    result = {}
    if kind == "fsdp1" and case.get("show_flat"):
        result["flat_parameters"] = flat_parameters(wrapped)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    ids = torch.zeros(1, 16, dtype=torch.long, device="cuda")
    micro = case.get("micro_steps", 1)
    auto = torch.autocast("cuda", dtype=torch.bfloat16, enabled=case.get("autocast", False))
    for step in range(1, case.get("steps", 3) + 1):
        common.mark(f"section step {step}")
        for m in range(micro):
            last = m == micro - 1
            skip = case.get("no_sync", False) and not last
            if kind == "fsdp2" and case.get("no_sync"):
                wrapped.set_requires_gradient_sync(last)
            if kind == "fsdp2" and case.get("no_all_reduce"):
                wrapped.set_requires_all_reduce(last)
            if kind == "fsdp2" and case.get("keep_unsharded"):
                wrapped.set_reshard_after_backward(last)
            with wrapped.no_sync() if skip and kind != "fsdp2" else contextlib.nullcontext():
                common.mark(f"at forward start {m}" if micro > 1 else "at forward start")
                with auto:
                    loss = wrapped(input_ids=ids, labels=ids).loss
                common.mark(f"at backward start {m}" if micro > 1 else "at backward start")
                loss.backward()
        common.mark("at clip")
        if case.get("clip"):
            wrapped.clip_grad_norm_(1.0) if kind == "fsdp1" else torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        common.mark("at optimizer")
        optimizer.step()
        optimizer.zero_grad()
    sections = rows_of(common.device_log())
    sections.pop("before", None)
    if sections.get("step 3") == sections.get("step 2"):
        sections["step 3"] = "as step 2"
    if sections.get("step 2") == sections.get("step 1"):
        sections["step 2"] = "as step 1"
    return {**result, "calls": sections}


def shard_shapes(model_name, world, ranks):
    """FSDP2: parameter, whole shape, then per rank the rows it owns; and the rows every rank stores."""
    def one(rank):
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.cuda.set_device(0)
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        model = common.build_model(model_name, device="cuda")
        whole = {n: list(p.shape) for n, p in model.named_parameters()}
        for layer in common.layers_of(model):
            fully_shard(layer, mesh=init_device_mesh("cuda", (world,)))
        fully_shard(model, mesh=init_device_mesh("cuda", (world,)))
        local, stored = {}, {}
        for module in model.modules():
            state = getattr(module, "_get_fsdp_state", lambda: None)()
            group = getattr(state, "_fsdp_param_group", None) if state else None
            for p in group.fsdp_params if group else []:
                name = next(n for n, q in model.named_parameters() if q is p.sharded_param)
                stored[name] = list(p.padded_sharded_param_size)
        for n, p in model.named_parameters():
            local[n] = list(p.to_local().shape)
        return {"whole": whole, "local": local, "stored": stored}

    results = {r: common.in_child(one, r) for r in ranks}
    if any("error" in r for r in results.values()):
        return next(r for r in results.values() if "error" in r)
    first = results[ranks[0]]
    rows = []
    for name, shape in first["whole"].items():
        if ".1." in name or ".layers." not in name and ".h." not in name:
            rows.append([name, shape, *[results[r]["local"][name] for r in ranks], first["stored"].get(name)])
    return {"model": model_name, "world": world, "columns": ["parameter", "shape", *[f"local on rank {r}" for r in ranks], "stored on every rank"],
            "rows": rows}


def cases():
    tiny = dict(model="llama-tiny")
    ddp = dict(tiny, kind="ddp")
    for world in (1, 8, 64):
        yield dict(ddp, world=world)
    small = {"bucket_cap_mb": 0.25}
    yield dict(ddp, world=8, ddp=small)
    yield dict(ddp, world=8, ddp={**small, "gradient_as_bucket_view": True})
    yield dict(ddp, world=8, ddp={**small, "static_graph": True})
    yield dict(ddp, world=8, ddp={**small, "find_unused_parameters": True})
    yield dict(ddp, world=8, ddp={"find_unused_parameters": True})
    yield dict(ddp, world=8, ddp={**small, "broadcast_buffers": False})
    yield dict(ddp, world=8, ddp=small, micro_steps=3, no_sync=True)
    yield dict(ddp, world=8, ddp=small, micro_steps=3)
    yield dict(ddp, world=8, ddp=small, hook="bf16_compress")
    yield dict(ddp, world=8, ddp=small, hook="allreduce")
    yield dict(ddp, world=8, ddp=small, hook="powersgd")
    yield dict(ddp, world=8, ddp=small, autocast=True, clip=True)
    yield dict(ddp, world=8, ddp=small, recompute=True)
    yield dict(ddp, model="llama-tiny-tied", world=8, ddp=small)
    yield dict(ddp, model="gpt2-tiny", world=8, ddp=small)
    yield dict(ddp, model="gpt2", world=8)
    yield dict(ddp, model="gpt2", world=8, ddp={"bucket_cap_mb": 25})
    yield dict(ddp, model="gpt2", world=8, weights="bf16")
    yield dict(ddp, model="llama-3.2-1b", world=8, weights="bf16")

    one = dict(tiny, kind="fsdp1")
    for world in (1, 8, 64):
        for orig in (False, True):
            yield dict(one, world=world, fsdp={"use_orig_params": orig}, show_flat=True)
    for model in ("llama-tiny-tied", "gpt2-tiny"):
        for orig in (False, True):
            yield dict(one, model=model, world=8, fsdp={"use_orig_params": orig}, show_flat=True)
    for world in (6, 8):
        for orig in (False, True):
            yield dict(one, model="llama-odd", world=world, fsdp={"use_orig_params": orig}, show_flat=True)
            yield dict(one, model="llama-odd", world=world, fsdp={"use_orig_params": orig}, mixed=("bf16", "fp32"), show_flat=True)
    yield dict(one, model="llama-odd", world=8, weights="bf16", fsdp={"use_orig_params": True}, show_flat=True)
    for sharding in ("SHARD_GRAD_OP", "NO_SHARD"):
        yield dict(one, world=8, fsdp={"sharding": sharding, "use_orig_params": True})
    for sharding in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
        yield dict(one, world=8, mesh=[2, 4], fsdp={"sharding": sharding, "use_orig_params": True})
    yield dict(one, world=64, fsdp={"sharding": "HYBRID_SHARD", "use_orig_params": True}, devices=8)
    orig = {"use_orig_params": True}
    for mixed in (("bf16", "fp32"), ("bf16", None), ("bf16", "bf16"), ("fp16", None)):
        yield dict(one, world=8, fsdp=orig, mixed=mixed)
    yield dict(one, world=8, fsdp={**orig, "sharding": "NO_SHARD"}, mixed=("bf16", "fp32"))
    for prefetch in ("BACKWARD_PRE", "BACKWARD_POST", None):
        yield dict(one, world=8, fsdp={**orig, "backward_prefetch": prefetch})
    yield dict(one, world=8, fsdp={**orig, "forward_prefetch": True})
    for sharding in ("FULL_SHARD", "SHARD_GRAD_OP"):
        for no_sync in (False, True):
            yield dict(one, world=8, fsdp={**orig, "sharding": sharding}, micro_steps=3, no_sync=no_sync, mixed=("bf16", "fp32"))
    yield dict(one, world=8, fsdp=orig, clip=True)
    yield dict(one, world=8, fsdp={**orig, "sync_module_states": True})
    yield dict(one, world=8, fsdp=orig, recompute=True)
    yield dict(one, model="llama-2-7b-2layers", world=8, fsdp=orig, mixed=("bf16", "fp32"), show_flat=True)
    yield dict(one, model="gpt2", world=8, fsdp=orig, mixed=("bf16", "fp32"), show_flat=False)

    two = dict(tiny, kind="fsdp2")
    for world in (1, 8, 64):
        yield dict(two, world=world)
    for world in (8,):
        yield dict(two, world=world, mixed=("bf16", "fp32"))
        yield dict(two, world=world, mixed=("bf16", None))
        yield dict(two, world=world, mixed=("fp16", "fp16"))
        for reshard in (False, 2, 4):
            yield dict(two, world=world, mixed=("bf16", "fp32"), reshard=reshard)
        yield dict(two, world=world, root_reshard=True)
        yield dict(two, world=world, mesh=[2, 4], mixed=("bf16", "fp32"))
        yield dict(two, world=world, mesh=[2, 4], mixed=("bf16", "fp32"), micro_steps=3, no_all_reduce=True)
        yield dict(two, world=world, mixed=("bf16", "fp32"), micro_steps=3)
        yield dict(two, world=world, mixed=("bf16", "fp32"), micro_steps=3, no_sync=True)
        yield dict(two, world=world, mixed=("bf16", "fp32"), micro_steps=3, no_sync=True, keep_unsharded=True)
        yield dict(two, world=world, grouping="torchtitan", mixed=("bf16", "fp32"))
        yield dict(two, world=world, grouping="torchtitan", mixed=("bf16", "fp32"), recompute=True)
        yield dict(two, world=world, clip=True)
        yield dict(two, world=world, recompute=True)
        yield dict(two, model="llama-tiny-tied", world=world)
        yield dict(two, model="llama-tiny-tied", world=world, grouping="torchtitan")
        yield dict(two, model="gpt2-tiny", world=world)
    yield dict(two, model="llama-odd", world=6, mixed=("bf16", "fp32"))
    yield dict(two, world=64, mesh=[8, 8], mixed=("bf16", "fp32"))
    yield dict(two, model="llama-2-7b-2layers", world=8, mixed=("bf16", "fp32"), grouping="torchtitan")
    yield dict(two, model="gpt2", world=8, mixed=("bf16", "fp32"))


def main():
    common.enter_phantom()
    import torch  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401
    import transformers.models.gpt2.modeling_gpt2  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401

    results, failed = [], 0
    for case in cases():
        result = common.in_child(run, case, env={"PHANTOM_DEVICES": case.get("devices", 1)})
        if "error" in result:
            failed += 1
            print("FAILED", case, result["error"], file=sys.stderr)
        else:
            shown = {k: v for k, v in case.items() if k != "show_flat"}
            results.append({"case": shown, **result})
    shapes = [shard_shapes("llama-tiny", 8, [0, 1, 6, 7]), shard_shapes("llama-tiny", 64, [0, 1, 50, 63]), shard_shapes("gpt2-tiny", 8, [0, 6, 7]),
              shard_shapes("llama-odd", 6, [0, 4, 5])]
    names = sorted({r["case"]["model"] for r in results})
    common.write_fixture(
        "collectives.json",
        "Collectives of DDP, FSDP1 and FSDP2 on rank 0, in the order they reach NCCL, from construction to step 3",
        {"format": {
            "cases[].case": "kind, model (shape in models), world; weights dtype (fp32 unless given); knobs by the framework's names; mixed = [param dtype, "
                            "reduce dtype]; micro_steps with no_sync or not; batch 1, sequence 16",
            "cases[].calls": "init, step 1, 2, 3: rows of columns; a step equal to the one before says so. `where` is the part of the model whose forward or "
                             "backward had last begun when the call was issued",
            "cases[].flat_parameters": "FSDP1 units: numel without the padding that only the last shard has, shard numel (same on every rank), "
                                       "padding after parameters (the last entry may fill up to the world size), numel and name of each parameter",
            "shard_shapes": "FSDP2: rows owned by some ranks and rows stored by every rank; layer 1 and the parameters outside layers"},
         "columns": COLUMNS, "models": {n: common.shape_of(n) for n in names}, "cases": results, "shard_shapes": shapes})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
