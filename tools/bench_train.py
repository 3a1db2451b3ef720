"""bench_train.py STEPS SLEEP_MS [traceml]: a training of a tiny model for tools/bench, one process, each step
with a sleep in its forward that makes it as long as wanted. `traceml` adds what that tracer asks of a script.
Last line on stdout: median and quartiles of the steps in us, what they took in all, the process.
"""
import contextlib
import json
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, SLEEP, WITH = int(sys.argv[1]), float(sys.argv[2]) / 1000, sys.argv[3:]
WARM = max(5, STEPS // 10)
torch.manual_seed(1)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                  nn.Linear(64, 8))

    def forward(self, x):
        if SLEEP:
            time.sleep(SLEEP)
        return self.body(x)


def in_step(_model):
    return contextlib.nullcontext()


if WITH == ["traceml"]:
    import traceml_ai
    traceml_ai.init(mode="auto")
    in_step = traceml_ai.trace_step

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
rows = 8 * (STEPS + WARM)
loader = DataLoader(TensorDataset(torch.randn(rows, 32), torch.randint(0, 8, (rows,))), batch_size=8)
begins = []
for x, y in loader:
    with in_step(model):
        begins.append(time.perf_counter())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
took = [b - a for a, b in zip(begins[WARM:], begins[WARM + 1:])]
low, middle, high = statistics.quantiles(took, n=4)
with open("/proc/self/status", encoding="utf-8") as file:
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
print(json.dumps({"us": middle * 1e6, "quartiles_us": [low * 1e6, high * 1e6], "peak_kb": peak,
                  "loop_s": begins[-1] - begins[0], "threads": len(os.listdir("/proc/self/task")),
                  "pid": os.getpid()}), flush=True)
