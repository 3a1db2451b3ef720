"""A small training for tools/gpu-check: DDP over NCCL with several ranks, else one process. Prints one JSON
line a rank: the device's time of each step by PyTorch's own events.

Environment: STEPS; SLOW_RANK and SLOW_MS: that rank's device spins so long in each forward; GRAPH=1: captures a
graph and prints its nodes; LOG_STEP: the step whose calls are written down (tools/gpu/calls.c)
"""
import ctypes
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
STEPS = int(os.environ.get("STEPS", "60"))
SLOW = float(os.environ.get("SLOW_MS", "0")) if os.environ.get("SLOW_RANK") == str(RANK) else 0.0
LOG_STEP = int(os.environ.get("LOG_STEP", "-1"))
WIDTH = int(os.environ.get("WIDTH", "2048"))
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
torch.cuda.set_device(device)
if WORLD > 1:
    dist.init_process_group("nccl")


def event():
    made = torch.cuda.Event(enable_timing=True)
    made.record()
    return made


def cycles_per_ms():
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    begin = event()
    torch.cuda._sleep(20_000_000)
    end = event()
    end.synchronize()
    return 20_000_000 / begin.elapsed_time(end)


def log(on):
    if LOG_STEP >= 0:
        ctypes.CDLL(None).gpu_check_log(on)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(64, WIDTH)]
        for _ in range(4):
            layers += [nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
        self.layers, self.cycles = nn.Sequential(*layers, nn.ReLU(), nn.Linear(WIDTH, 8)), 0

    def forward(self, x):
        if self.cycles:
            torch.cuda._sleep(self.cycles)
        return self.layers(x)


def graph_nodes():
    layer, x = nn.Linear(64, 64, device=device), torch.zeros(8, 64, device=device)
    layer(x).sum().backward()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        layer(x).sum().backward()
    count = ctypes.c_size_t()
    with open("/proc/self/maps", encoding="ascii") as maps:
        path = next(line.split()[-1] for line in maps if "/libcudart.so." in line)
    ctypes.CDLL(path).cudaGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count))
    return count.value


model = Model().to(device)
model.cycles = int(SLOW * cycles_per_ms()) if SLOW else 0
net = nn.parallel.DistributedDataParallel(model, device_ids=[device.index], bucket_cap_mb=8,
                                          gradient_as_bucket_view=True) if WORLD > 1 else model
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = TensorDataset(torch.randn(32 * STEPS, 64), torch.randint(0, 8, (32 * STEPS,)))
marks, nodes = [], None
for step, (x, y) in enumerate(DataLoader(data, batch_size=32, pin_memory=True)):
    marks.append(event())
    log(step == LOG_STEP)
    if os.environ.get("GRAPH") and step == 5:
        nodes = graph_nodes()
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
torch.cuda.synchronize()
print(json.dumps({"rank": RANK, "nodes": nodes,
                  "ms": [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]}), flush=True)
if WORLD > 1:
    dist.barrier()
    dist.destroy_process_group()
