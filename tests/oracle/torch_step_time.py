#!/usr/bin/python3
"""Times a training step of PyTorch and of the host kernels, in turns, one thread each.

    torch_step_time.py BENCH_OPS [MODEL:DTYPE ...]    (MODEL small or gpt2-124m, DTYPE f32 or bf16)

For each pair prints both best times and their ratio (kernels / PyTorch). Exits 77 without PyTorch, 1 if a ratio is
over 1. Times are the process's processor time: with one thread on a quiet machine that is the time on the wall, and
on a busy one it leaves out the others' turns. PyTorch is given its fastest way of each kind: fused gelu, one product for q, k and v, AdamW both as a loop
and with foreach, bf16 both as bf16 weights and by autocast. Each round runs the one, then the other, so that other
load on the machine meets both; the best of all rounds counts.
"""
import math
import os
import re
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("PyTorch is not there (Debian: python3-torch)")
    sys.exit(77)

# layers, hidden, heads, ffn, vocab, seq_len, micro_batch, rounds, steps per round. In bf16 two rounds of one
# step do: where PyTorch has no bf16 product for the CPU its step takes minutes.
MODELS = {
    "small": (4, 256, 8, 1024, 512, 128, 8, 6, 8),
    "gpt2-124m": (12, 768, 12, 3072, 50257, 64, 4, 3, 2),
}


def attention(q, k, v, mask):
    scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(q.shape[-1]))
    return torch.bmm(torch.softmax(scores, -1), v)


class Block(torch.nn.Module):
    def __init__(self, hidden, heads, ffn):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.qkv, self.proj = torch.nn.Linear(hidden, 3 * hidden), torch.nn.Linear(hidden, hidden)
        self.up, self.down = torch.nn.Linear(hidden, ffn), torch.nn.Linear(ffn, hidden)

    def forward(self, x, mask):
        b, t, c = x.shape
        qkv = self.qkv(self.ln_1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).flatten(1, 2)
        y = attention(qkv[0], qkv[1], qkv[2], mask.to(qkv.dtype))
        x = x + self.proj(y.view(b, self.heads, t, -1).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(torch.nn.Module):
    def __init__(self, layers, hidden, heads, ffn, vocab, seq_len):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(vocab, hidden), torch.nn.Embedding(seq_len, hidden)
        self.blocks = torch.nn.ModuleList(Block(hidden, heads, ffn) for _ in range(layers))
        self.ln_f = torch.nn.LayerNorm(hidden)
        self.register_buffer("mask", torch.full((1, seq_len, seq_len), -math.inf).triu(1))

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return F.linear(self.ln_f(x), self.wte.weight)


def stepper(name, dtype, foreach, autocast):
    layers, hidden, heads, ffn, vocab, seq_len, micro_batch = MODELS[name][:7]
    torch.manual_seed(1)
    model = GPT2(layers, hidden, heads, ffn, vocab, seq_len)
    if dtype == "bf16" and not autocast:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, foreach=foreach)
    tokens, targets = torch.randint(0, vocab, (2, micro_batch, seq_len))

    def step():
        start = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return time.process_time() - start

    return step


def fastest_stepper(name, dtype):
    """Of PyTorch's ways, by their second step (bf16: first); (description, step)."""
    best = None
    for foreach in (False, True):
        for autocast in ((False, True) if dtype == "bf16" else (False,)):
            step = stepper(name, dtype, foreach, autocast)
            if dtype == "f32":
                step()
            seconds = step()
            if best is None or seconds < best[0]:
                best = (seconds, f"foreach={foreach} autocast={autocast}", step)
    return best[1:]


def main():
    torch.set_num_threads(1)
    bench, pairs = sys.argv[1], sys.argv[2:] or ["small:f32", "gpt2-124m:f32", "small:bf16"]
    worst = 0.0
    print(f"PyTorch {torch.__version__}, load average {os.getloadavg()[0]:.2f}")
    for pair in pairs:
        name, dtype = pair.split(":")
        rounds, steps = MODELS[name][7:] if dtype == "f32" else (2, 1)
        way, step = fastest_stepper(name, dtype)
        ours, theirs = [], []
        for _ in range(rounds):
            out = subprocess.run([bench, name, dtype, str(steps)], capture_output=True, text=True, check=True).stdout
            ours.append(float(re.search(r"step_s (\S+)", out)[1]))
            theirs.append(min(step() for _ in range(steps)))
        ratio = min(ours) / min(theirs)
        worst = max(worst, ratio)
        print(f"{name:10} {dtype:5} kernels {min(ours):8.4f} s   PyTorch {min(theirs):8.4f} s ({way})   ratio {ratio:.3f}")
    print(f"load average {os.getloadavg()[0]:.2f}")
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
