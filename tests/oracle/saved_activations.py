"""saved_activations.json: the tensors that autograd keeps from forward to backward, per part of the model and per op.

Walks the autograd graph after the forward and lists every tensor a node saved, once per storage, attributed to the op that
saved it first and to the module that ran it (by sequence number). Runs Transformers' own modules on the phantom device, and on the
CPU for comparison. The sum is checked against the allocator: bytes alive after the forward less bytes before.
"""
import gc
import sys

import common

RULE = 512  # the caching allocator rounds every block up to this


def part_of(module, model_name):
    """embedding, layer.<i>, final_norm, head, loss, or model (code of the model body outside any listed part)."""
    for prefix in ("model.layers.", "transformer.h."):
        if module.startswith(prefix):
            return "layer." + module[len(prefix):].split(".")[0]
    table = {"model.embed_tokens": "embedding", "transformer.wte": "embedding", "transformer.wpe": "embedding", "transformer.drop": "embedding",
             "model.norm": "final_norm", "transformer.ln_f": "final_norm", "lm_head": "head", "model.rotary_emb": "rotary"}
    return table.get(module, "model" if module in ("model", "transformer") else "loss")


class Spans:
    """Sequence-number interval of every module call: autograd numbers its nodes in order of creation."""

    def __init__(self, model):
        import torch

        self.spans = []
        self.now = torch._C._autograd._get_sequence_nr if hasattr(torch._C._autograd, "_get_sequence_nr") else None
        self.handles = []
        for name, module in model.named_modules():
            self.handles.append(module.register_forward_pre_hook(self._enter(name)))
            self.handles.append(module.register_forward_hook(self._leave(name)))
        self.open = []

    def _enter(self, name):
        def hook(module, args):
            self.open.append((name, self.now()))
        return hook

    def _leave(self, name):
        def hook(module, args, output):
            opened, first = self.open.pop()
            assert opened == name
            self.spans.append((first, self.now(), name))
        return hook

    def close(self):
        for h in self.handles:
            h.remove()

    def module_of(self, sequence):
        best = None
        for first, end, name in self.spans:
            if first <= sequence < end and (best is None or end - first < best[0]):
                best = (end - first, name)
        return best[1] if best else ""


def graph_nodes(root):
    """Every node reachable from root, in order of creation."""
    seen, stack, nodes = set(), [root], []
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes.append(node)
        stack.extend(n for n, _ in node.next_functions)
    return sorted((n for n in nodes if n.name() != "torch::autograd::AccumulateGrad"), key=lambda n: n._sequence_nr())


def saved_of(node):
    """(name, tensor) of what a node saved."""
    import torch

    found = []
    for attr in dir(node):
        if attr.startswith("_saved_"):
            value = getattr(node, attr)
            if isinstance(value, torch.Tensor):
                found.append((attr[len("_saved_"):], value))
            elif isinstance(value, (tuple, list)):
                found += [(attr[len("_saved_"):], v) for v in value if isinstance(v, torch.Tensor)]
    if not found and hasattr(node, "saved_tensors"):
        found = [("saved", v) for v in node.saved_tensors if isinstance(v, torch.Tensor)]
    return found


def measure(case):
    import torch

    device = case["device"]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "autocast": torch.float32}[case["precision"]]
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = common.build_model(case["model"], attention=case["attention"], dropout=case["dropout"], dtype=dtype, device=device,
                               use_cache=case.get("use_cache", False))
    if case.get("checkpointing"):
        common.checkpoint_layers(model)
    batch, seq = case["batch"], case["seq"]
    ids = torch.zeros(batch, seq, dtype=torch.long, device=device)
    params = {p.untyped_storage().data_ptr(): n for n, p in model.named_parameters()}
    buffers = {b.untyped_storage().data_ptr() for b in model.buffers()}
    on_gpu = device == "cuda"
    context = torch.autocast(device, dtype=torch.bfloat16, enabled=case["precision"] == "autocast")

    def forward():
        with context:
            return model(input_ids=ids, labels=ids)

    forward().loss.backward()  # creates what persists: library workspaces, cached tables
    model.zero_grad(set_to_none=True)
    gc.collect()
    spans = Spans(model)
    before = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    output = forward()
    after = torch.cuda.memory_allocated() if on_gpu else 0
    forward_peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    spans.close()

    inputs = ids.untyped_storage().data_ptr()
    storages, rows = {}, []
    for node in graph_nodes(output.loss.grad_fn) if not case.get("checkpointing") else []:  # looking would recompute
        module = spans.module_of(node._sequence_nr())
        for name, tensor in saved_of(node):
            key = tensor.untyped_storage().data_ptr()
            if tensor.device.type != device or tensor.untyped_storage().nbytes() == 0:
                continue
            if key in params or key in buffers or key == inputs or key in storages:
                continue
            storages[key] = tensor.untyped_storage().nbytes()
            rows.append((part_of(module, case["model"]), module, node.name().replace("Backward0", "").replace("torch::autograd::", ""), name,
                         list(tensor.shape), str(tensor.dtype)[6:], tensor.untyped_storage().nbytes()))
    held = {}
    for name in ("logits", "loss"):
        tensor = getattr(output, name, None)
        if tensor is not None and tensor.untyped_storage().data_ptr() not in storages:
            held[name] = tensor.untyped_storage().nbytes()
    cache = getattr(output, "past_key_values", None)
    if cache is not None and hasattr(cache, "layers"):
        for layer in cache.layers:
            for tensor in (layer.keys, layer.values):
                key = tensor.untyped_storage().data_ptr()
                if key not in storages:
                    storages[key] = 0
                    held["cache"] = held.get("cache", 0) + tensor.untyped_storage().nbytes()

    parts = {}
    for part, *_, nbytes in rows:
        parts[part] = parts.get(part, 0) + nbytes
    rounded = sum((n + RULE - 1) // RULE * RULE for n in list(storages.values()) + list(held.values()))
    layers = sorted((p for p in parts if p.startswith("layer.")), key=lambda p: int(p[6:]))
    shown = "layer.1" if "layer.1" in parts else "layer.0"
    result = {}
    if not case.get("checkpointing"):
        result = {"by_part": {p: parts[p] for p in parts if not p.startswith("layer.") or p in ("layer.0", "layer.1", layers[-1])},
                  "saved_bytes": sum(r[-1] for r in rows), "held_by_outputs": held}
    if on_gpu:
        result["allocator"] = {"rounded_saved_and_held": rounded if rows else None, "alive_after_forward": after - before, "peak_of_forward": forward_peak - before}
        torch.cuda.reset_peak_memory_stats()
        output.loss.backward()
        result["allocator"]["peak_of_backward"] = torch.cuda.max_memory_allocated() - before
    if case.get("rows", True) and rows:
        result["tensors"] = [list(r[1:]) for r in rows if r[0] == shown] + [list(r[1:]) for r in rows if not r[0].startswith("layer.")]
    return result


def backends():
    """Which attention kernel scaled_dot_product_attention picks, before anything is disabled."""
    import torch

    names = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn", 4: "overrideable"}
    rows = []
    for dtype in (torch.bfloat16, torch.float32):
        for head in (16, 20, 64, 128, 192, 256, 264):
            for dropout in (0.0, 0.1):
                for mask in (False, True):
                    for grouped in (False, True):
                        q = torch.empty(2, 8, 64, head, device="cuda", dtype=dtype, requires_grad=True)
                        k = torch.empty(2, 2 if grouped else 8, 64, head, device="cuda", dtype=dtype, requires_grad=True)
                        bias = torch.empty(2, 1, 64, 64, device="cuda", dtype=dtype) if mask else None
                        try:
                            picked = names[torch._fused_sdp_choice(q, k, k, attn_mask=bias, dropout_p=dropout, is_causal=not mask, enable_gqa=grouped)]
                        except RuntimeError:
                            picked = "error"
                        rows.append([str(dtype)[6:], head, dropout, mask, grouped, picked])
    return rows


def cases():
    small = [("llama-tiny", 3, 37), ("llama-tiny-tied", 2, 64), ("gpt2-tiny", 3, 37)]
    for model, batch, seq in small:
        for attention in ("eager", "sdpa"):
            for precision in ("bf16", "fp32", "autocast"):
                for dropout in ((0.0, 0.1) if model.startswith("gpt2") or model == "llama-tiny" else (0.0,)):
                    yield dict(model=model, batch=batch, seq=seq, attention=attention, precision=precision, dropout=dropout, device="cuda",
                               rows=model != "llama-tiny-tied" and not (model == "llama-tiny" and dropout))
    for attention in ("eager", "sdpa"):
        yield dict(model="llama-odd-head", batch=2, seq=33, attention=attention, precision="bf16", dropout=0.0, device="cuda")
    for model in ("llama-tiny", "gpt2-tiny"):
        for attention in ("eager", "sdpa"):
            yield dict(model=model, batch=3, seq=37, attention=attention, precision="fp16", dropout=0.1, device="cuda", rows=False)
            for precision in ("bf16", "fp32"):
                yield dict(model=model, batch=3, seq=37, attention=attention, precision=precision, dropout=0.1 if model == "gpt2-tiny" else 0.0,
                           device="cpu", rows=precision == "bf16")
        yield dict(model=model, batch=3, seq=37, attention="sdpa", precision="bf16", dropout=0.0, device="cuda", use_cache=True, rows=False)
        yield dict(model=model, batch=3, seq=37, attention="sdpa", precision="bf16", dropout=0.0, device="cuda", checkpointing=True)
    for model, batch, seq in (("gpt2", 8, 1024), ("gpt2-medium", 2, 1024), ("llama-3.2-1b", 1, 2048), ("llama-2-7b-2layers", 1, 4096),
                              ("llama-2-7b", 1, 4096), ("llama-3.1-8b", 1, 8192)):
        for attention in ("eager", "sdpa"):
            for precision in ("bf16", "autocast", "fp32"):
                if attention == "eager" and model in ("llama-2-7b", "llama-3.1-8b"):
                    continue  # beyond the device
                dropout = 0.1 if model.startswith("gpt2") else 0.0
                yield dict(model=model, batch=batch, seq=seq, attention=attention, precision=precision, dropout=dropout, device="cuda", rows=False)
        yield dict(model=model, batch=batch, seq=seq, attention="sdpa", precision="bf16", dropout=0.1 if model.startswith("gpt2") else 0.0, device="cuda",
                   checkpointing=True, rows=False)


def main():
    common.enter_phantom()
    import torch  # noqa: F401  once, before the children are forked
    import transformers.models.gpt2.modeling_gpt2  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401

    results, failed = [], 0
    for case in cases():
        result = common.in_child(measure, case, env={"PHANTOM_MEMORY": 1 << 40})
        if "error" in result:
            failed += 1
            print("FAILED", case, result["error"], file=sys.stderr)
        else:
            results.append({"case": {k: v for k, v in case.items() if k != "rows"}, **result})
    names = sorted({r["case"]["model"] for r in results})
    picked = {gpu: common.in_child(backends, env={"PHANTOM_GPU": gpu}) for gpu in ("h100", "a100")}
    common.write_fixture(
        "saved_activations.json",
        "Tensors autograd keeps from forward to backward in Transformers' GPT-2 and LLaMA, one row per storage",
        {"format": {
            "cases[].case": "model (shape in models), batch, seq, attention, precision (autocast = fp32 weights under torch.autocast bf16), dropout, device",
            "cases[].by_part": "bytes per part: embedding, layer.0, layer.1, last layer (all others equal layer.1 unless listed), final_norm, head, loss",
            "cases[].held_by_outputs": "bytes alive only because the model's output object refers to them",
            "cases[].allocator": "bytes by the caching allocator: alive after forward and peaks, all less what was alive before the forward; "
                                 "rounded_saved_and_held is the sum of the listed storages, each rounded up to 512",
            "cases[].tensors": "rows of layer.1 then of the other parts: module, op that saved it first, its name there, shape, dtype, storage bytes"},
         "note": "cuDNN attention cannot run on the phantom device and is disabled, so sdpa here is flash or efficient attention; "
                 "sdpa_backends shows what would be picked with it",
         "sdpa_backends": {"columns": ["dtype", "head_dim", "dropout", "explicit mask (else causal)", "grouped heads (enable_gqa)", "picked"], **picked},
         "models": {n: common.shape_of(n) for n in names},
         "cases": results})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
