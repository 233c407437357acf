#!/usr/bin/python3
"""Training of two small transformers by PyTorch in double precision: the fixtures of tests/data/torch-training.

    /usr/bin/python3 tests/oracle/torch_training.py tests/data/torch-training      (Debian: python3-torch)

writes gpt2.json and llama.json, each with
    config     the fields of a Hugging Face config.json
    adamw      of torch.optim.AdamW; decay for matrices only, none for biases and norms
    batches    per step (micro_batch, seq_len + 1) tokens: inputs are all but the last, targets all but the first;
               consecutive rows are windows of one stream and share a token
    tensors    in the order of Hugging Face's named_parameters(): name, shape, and flat
               init / init_divisor   the weights before the first step (exact in float and in bf16)
               grad                  the gradient of the mean loss of the first batch
               after                 the weights after the last step
               Weights of linear layers are (out, in); of GPT-2's Conv1D that is the transpose.
    logits     (micro_batch * seq_len, vocab) of the first batch, before the first step
    losses     mean loss of each step, before its update

The models are written out here from the papers' formulas, so that only PyTorch is needed; autograd gives the
gradients and torch.optim.AdamW the steps.
"""
import json
import math
import os
import sys

import torch
import torch.nn.functional as F

B, T, STEPS = 2, 9, 10
ADAMW = {"lr": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-4, "weight_decay": 0.1}
# eps is large beside AdamW's usual 1e-8 so that a gradient that is 0 but for rounding (of key biases) does not
# become a step of full size in whatever direction the rounding had.

GPT2 = {"model_type": "gpt2", "vocab_size": 37, "n_positions": T, "n_embd": 24, "n_layer": 2, "n_head": 4,
        "n_inner": 40, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
LLAMA = {"model_type": "llama", "vocab_size": 37, "max_position_embeddings": T, "hidden_size": 24,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
         "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}


def shapes(c):
    if c["model_type"] == "gpt2":
        C, FF = c["n_embd"], c["n_inner"]
        yield "transformer.wte.weight", (c["vocab_size"], C)
        yield "transformer.wpe.weight", (c["n_positions"], C)
        for i in range(c["n_layer"]):
            h = f"transformer.h.{i}."
            yield from [(h + "ln_1.weight", (C,)), (h + "ln_1.bias", (C,)),
                        (h + "attn.c_attn.weight", (3 * C, C)), (h + "attn.c_attn.bias", (3 * C,)),
                        (h + "attn.c_proj.weight", (C, C)), (h + "attn.c_proj.bias", (C,)),
                        (h + "ln_2.weight", (C,)), (h + "ln_2.bias", (C,)),
                        (h + "mlp.c_fc.weight", (FF, C)), (h + "mlp.c_fc.bias", (FF,)),
                        (h + "mlp.c_proj.weight", (C, FF)), (h + "mlp.c_proj.bias", (C,))]
        yield from [("transformer.ln_f.weight", (C,)), ("transformer.ln_f.bias", (C,))]
    else:
        C, FF = c["hidden_size"], c["intermediate_size"]
        KV = C // c["num_attention_heads"] * c["num_key_value_heads"]
        yield "model.embed_tokens.weight", (c["vocab_size"], C)
        for i in range(c["num_hidden_layers"]):
            h = f"model.layers.{i}."
            yield from [(h + "self_attn.q_proj.weight", (C, C)), (h + "self_attn.k_proj.weight", (KV, C)),
                        (h + "self_attn.v_proj.weight", (KV, C)), (h + "self_attn.o_proj.weight", (C, C)),
                        (h + "mlp.gate_proj.weight", (FF, C)), (h + "mlp.up_proj.weight", (FF, C)),
                        (h + "mlp.down_proj.weight", (C, FF)),
                        (h + "input_layernorm.weight", (C,)), (h + "post_attention_layernorm.weight", (C,))]
        yield from [("model.norm.weight", (C,)), ("lm_head.weight", (c["vocab_size"], C))]


def attention(q, k, v):
    """(B, heads, T, head_dim); keys and values of a group are shared by neighbouring query heads."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    return (scores.masked_fill(hidden, -math.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)


def heads(x, head_dim):
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt2(c, w, tokens):
    head_dim = c["n_embd"] // c["n_head"]

    def norm(x, name):
        return F.layer_norm(x, (c["n_embd"],), w[name + ".weight"], w[name + ".bias"], c["layer_norm_epsilon"])

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][: tokens.shape[1]]
    for i in range(c["n_layer"]):
        h = f"transformer.h.{i}."
        q, k, v = (heads(t, head_dim) for t in linear(norm(x, h + "ln_1"), h + "attn.c_attn").chunk(3, -1))
        x = x + linear(attention(q, k, v), h + "attn.c_proj")
        x = x + linear(gelu_new(linear(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
    return F.linear(norm(x, "transformer.ln_f"), w["transformer.wte.weight"])


def rotate(x, theta):
    """(B, heads, T, head_dim): element i is paired with i + head_dim/2."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * frequency
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def llama(c, w, tokens):
    head_dim = c["hidden_size"] // c["num_attention_heads"]

    def norm(x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]) * w[name + ".weight"]

    def linear(x, name):
        return F.linear(x, w[name + ".weight"])

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        h = f"model.layers.{i}."
        y = norm(x, h + "input_layernorm")
        q, k, v = (heads(linear(y, h + f"self_attn.{p}_proj"), head_dim) for p in "qkv")
        x = x + linear(attention(rotate(q, c["rope_theta"]), rotate(k, c["rope_theta"]), v), h + "self_attn.o_proj")
        y = norm(x, h + "post_attention_layernorm")
        x = x + linear(F.silu(linear(y, h + "mlp.gate_proj")) * linear(y, h + "mlp.up_proj"), h + "mlp.down_proj")
    return F.linear(norm(x, "model.norm"), w["lm_head.weight"])


def initial(name, shape, generator):
    """Integers; divided by 256 they are the weights: within 0.3 of 0, norms' weights of 1."""
    draw = torch.randint(-80, 81, shape, generator=generator)
    return draw + 256 - draw % 4 if len(shape) == 1 and name.endswith("weight") else draw


def flat(t):
    return [float(f"{v:.8g}") for v in t.detach().flatten().tolist()]


def train(config, forward):
    generator = torch.Generator().manual_seed(1)
    ints = {name: initial(name, shape, generator) for name, shape in shapes(config)}
    w = {name: (i.double() / 256).requires_grad_() for name, i in ints.items()}
    # windows of one stream, as a run reads its data: sequence s is tokens s*T .. s*T + T
    stream = torch.randint(0, config["vocab_size"], (STEPS * B * T + 1,), generator=generator)
    batches = stream.unfold(0, T + 1, T).reshape(STEPS, B, T + 1)
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in w.values() if t.dim() > 1], "weight_decay": ADAMW["weight_decay"]},
         {"params": [t for t in w.values() if t.dim() == 1], "weight_decay": 0.0}],
        lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])
    losses, grads, first_logits = [], {}, None
    for batch in batches:
        optimizer.zero_grad()
        logits = forward(config, w, batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        if first_logits is None:
            first_logits = logits
            grads = {name: t.grad.clone() for name, t in w.items()}
        losses.append(float(f"{loss.item():.12g}"))
        optimizer.step()
    return {
        "made_by": f"tests/oracle/torch_training.py, torch {torch.__version__}, float64, seed 1",
        "config": config, "micro_batch": B, "seq_len": T, "adamw": ADAMW, "batches": batches.tolist(),
        "init_divisor": 256,
        "tensors": [{"name": n, "shape": list(w[n].shape), "init": ints[n].flatten().tolist(),
                     "grad": flat(grads[n]), "after": flat(w[n])} for n in w],
        "logits": flat(first_logits), "losses": losses,
    }


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for config, forward in [(GPT2, gpt2), (LLAMA, llama)]:
        result = train(config, forward)
        print(config["model_type"], result["losses"])
        with open(os.path.join(sys.argv[1], config["model_type"] + ".json"), "w") as f:
            f.write("{\n")
            f.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in result.items() if k != "tensors"))
            f.write(',\n"tensors": [\n')
            f.write(",\n".join(json.dumps(t, separators=(",", ":")) for t in result["tensors"]))
            f.write("\n]}\n")
