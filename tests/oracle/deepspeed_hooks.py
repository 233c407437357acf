"""Host time that DeepSpeed's hooks add to each module with parameters, by ZeRO stage.

Runs on the CPU (DS_ACCELERATOR=cpu, one rank, gloo) with modules so small that Python is all there is to
measure. What a GPU adds (streams, events, NCCL's launches) is not in it. Writes data/oracle/deepspeed_hooks.json.
"""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, LINEARS, WIDTH, STEPS = 24, 4, 64, 20
MODULES = LAYERS * (LINEARS + 2)


def one(stage):
    import deepspeed
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.linears = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(LINEARS)])

        def forward(self, x):
            x = self.first(x)
            for linear in self.linears:
                x = linear(x)
            return self.last(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x.sum()

    torch.set_num_threads(1)
    net, x = Net(), torch.zeros(1, WIDTH, dtype=torch.bfloat16)
    if stage < 0:
        net = net.bfloat16()

        def step():
            net(x).backward()
    else:
        config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
                  "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
                  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}}
        engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)

        def step():
            engine.backward(engine(x))
    for _ in range(3):
        step()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print("RESULT", json.dumps([sorted(times)[STEPS // 2], torch.__version__, deepspeed.__version__]))


def main():
    out = {"format": "stages: seconds of one micro-step (forward and backward, median of %d) of %d modules with parameters; "
                     "plain is PyTorch without DeepSpeed; host_s_per_module: (stage - plain) / modules" % (STEPS, MODULES),
           "command": "python tests/oracle/deepspeed_hooks.py", "modules": MODULES, "stages": {}, "host_s_per_module": {}}
    for i, stage in enumerate([-1, 0, 1, 2, 3]):
        env = dict(os.environ, DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29610 + i))
        text = subprocess.run([sys.executable, os.path.abspath(__file__), str(stage)], env=env, capture_output=True, text=True, check=True).stdout
        seconds, torch_version, deepspeed_version = json.loads([line for line in text.splitlines() if line.startswith("RESULT")][0][7:])
        out["stages"]["plain" if stage < 0 else str(stage)] = round(seconds, 6)
        out["versions"] = {"torch": torch_version, "deepspeed": deepspeed_version}
    plain = out["stages"]["plain"]
    for stage in ("0", "1", "2", "3"):
        out["host_s_per_module"][stage] = round((out["stages"][stage] - plain) / MODULES, 7)
    with open(os.path.join(HERE, "..", "data", "oracle", "deepspeed_hooks.json"), "w") as file:
        json.dump(out, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    one(int(sys.argv[1])) if len(sys.argv) > 1 else main()
