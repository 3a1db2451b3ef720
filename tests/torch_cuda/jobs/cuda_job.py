"""What the CUDA training jobs share, on top of tests/torch/jobs/common.py (faults, truth, loader): the
device and NCCL in place of Gloo, the stand-ins' own functions, and the truth on the device's clock. A
job is an ordinary training script; nothing here knows of any tracer.

Environment, beside common.py's:
LAYERS  hidden layers (default 4: 17 gemms a step, 5 gradient buckets)
PIN=1   batches from pinned memory, copied asynchronously
ITEM    the loss is read every so many steps (default 0: never)
"""
import ctypes
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "torch" / "jobs"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import common  # noqa: E402
from common import BATCH, CLASSES, STEPS, WIDTH, Fault, Job, Truth, knob, loss_of  # noqa: E402


def cudart():
    """The loaded stand-in, for its own functions and for the thread's last error."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        path = next(line.split()[-1] for line in maps if "/libcudart.so." in line)
    return ctypes.CDLL(path)


class CudaJob(Job):
    """A rank on device LOCAL_RANK. Marks of the device's time at each iteration's begin are the truth
    that laggard's device times are compared with."""

    def __init__(self):  # pylint: disable=super-init-not-called
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(self.device)
        if self.world > 1:
            dist.init_process_group("nccl")
        self.fault = Fault(os.environ.get("FAULT", ""), self.rank, self.world)
        self.truth = Truth(os.environ.get("TRUTH"), self.rank)
        self.pid = os.getpid()
        self.iteration, self.losses, self.marks = -1, [], []
        self.begun, self.slept, self.backwards = 0, {}, 0
        self.simulator = cudart()
        self.simulator.simWaited.restype = ctypes.c_uint64
        self.waited = []
        self.truth.write(rank=self.rank, world=self.world, pid=self.pid)

    def begin(self):
        super().begin()
        self.simulator.simStep(ctypes.c_uint64(self.iteration))
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)
        # of what the device has done by now: the steps before only if the host has waited for them
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.waited.append(self.simulator.simWaited(stream))

    def keep(self, loss):
        every = knob("ITEM", 0)
        if every and self.iteration % every == every - 1:
            self.losses.append(loss.item())

    def finish(self, **more):
        torch.cuda.synchronize()
        while not all(event.query() for event in self.marks):  # SIM_NOT_READY: not at the first time
            pass
        device_ms = [a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])]
        print(f"rank {self.rank} finished {self.iteration + 1} steps", flush=True)
        if self.world > 1:
            dist.barrier()
        self.truth.write(done=True, iterations=self.iteration + 1, device_ms=device_ms,
                         waited_ns=self.waited, **more,
                         **common.process_state())
        if self.world > 1:
            dist.destroy_process_group()

    # --- parts to build a job from

    def loader(self, batches=STEPS, **options):
        options.setdefault("pin_memory", bool(knob("PIN", 0)))
        return DataLoader(self.samples(batches), batch_size=BATCH, **options)

    def batches(self, loader, count=1):
        """The iterations' batches, on the device."""
        for batch in self.iterations(loader, count):
            yield self.to_device(batch) if count == 1 else map(self.to_device, batch)

    def to_device(self, batch):
        return [x.to(self.device, non_blocking=bool(knob("PIN", 0))) for x in batch]

    def model(self, **options):
        return Deep(self, **options).to(self.device)

    def ddp(self, model, **options):
        options.setdefault("bucket_cap_mb", 0.2)
        options.setdefault("gradient_as_bucket_view", True)
        return nn.parallel.DistributedDataParallel(model, device_ids=[self.device.index], **options)


class Deep(nn.Module):
    """Linear layers; with the default four hidden ones a step has 6 gemms forward and 11 backward. Slow
    on the host in forward and in backward if asked."""

    def __init__(self, job, width=256):
        super().__init__()
        self.job = job
        layers = [nn.Linear(WIDTH, width)]
        for _ in range(knob("LAYERS", 4)):
            layers += [nn.ReLU(), nn.Linear(width, width)]
        self.layers = nn.Sequential(*layers, nn.ReLU(), nn.Linear(width, CLASSES))

    def forward(self, x):
        if self.training:
            self.job.sleep("forward")
        out = self.layers(x)
        if self.training and out.requires_grad:
            out.register_hook(self.slow_gradient)
        return out

    def slow_gradient(self, gradient):
        self.job.sleep("backward")
        return gradient


__all__ = ["BATCH", "CLASSES", "CudaJob", "Deep", "STEPS", "WIDTH", "cudart", "dist", "knob",
           "loss_of", "nn", "torch"]
