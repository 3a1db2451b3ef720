"""What the training jobs of this directory share: process group, seeds, data, a small model,
injected sleeps, and a truth file. A job is an ordinary training script; nothing here knows of any
tracer.

Environment:
STEPS   iterations (default 20); a job with epochs splits them
FAULT   comma-separated RANK:STAGE:MS[:every=K][:from=N]: sleep MS milliseconds in STAGE (input,
        forward, backward, optimizer, host) of every K-th iteration from N on. RANK may be * (every
        rank) or `rotate` (another one each time)
TRUTH   a directory: rank R appends what really happened to TRUTH/R.jsonl, one line an iteration
RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as usual; without RANK one process trains alone
"""
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, CLASSES, BATCH = 32, 8, 8
STEPS = int(os.environ.get("STEPS", "20"))


def knob(name, default=0):
    return type(default)(os.environ.get(name, default))


def version():
    return tuple(int(x) for x in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])


class Fault:
    """The sleeps that FAULT asks of one rank."""

    def __init__(self, text, rank, world):
        self.rank, self.world, self.items = rank, world, []
        for item in filter(None, text.split(",")):
            who, stage, ms, *rest = item.split(":")
            options = dict(r.split("=") for r in rest)
            self.items.append((who, stage, float(ms), int(options.get("every", 1)),
                               int(options.get("from", 0))))

    def ms(self, stage, iteration):
        total = 0.0
        for who, where, ms, every, first in self.items:
            turn, off = divmod(iteration - first, every)
            if where == stage and turn >= 0 and off == 0 and who in (
                    "*", str(self.rank), "rotate" if turn % self.world == self.rank else "*"):
                total += ms
        return total


class Truth:
    """Appends one line at a time, so that it survives a kill."""

    def __init__(self, directory, rank):
        self.fd = -1
        if directory:
            path = os.path.join(directory, f"{rank}.jsonl")
            self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, **line):
        if self.fd >= 0:
            os.write(self.fd, (json.dumps(line) + "\n").encode())


def process_state():
    """What a guest in this process could have left behind: threads, descriptors, mapped files."""
    tasks = []
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/comm", encoding="utf-8") as file:
            tasks.append(file.read().strip())
    descriptors = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            descriptors.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:  # the descriptor of the listing itself
            pass
    with open("/proc/self/maps", encoding="utf-8") as file:
        maps = {line.split(None, 5)[5].strip() for line in file if len(line.split(None, 5)) > 5}
    return {"tasks": sorted(tasks), "fds": sorted(descriptors), "maps": sorted(maps)}


class Job:
    def __init__(self, rank=None, world=None, init_method=None):
        self.rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self.world = int(os.environ.get("WORLD_SIZE", "1")) if world is None else world
        torch.manual_seed(1)
        torch.set_num_threads(1)
        if self.world > 1:
            dist.init_process_group("gloo", init_method=init_method, rank=self.rank,
                                    world_size=self.world)
        self.fault = Fault(os.environ.get("FAULT", ""), self.rank, self.world)
        self.truth = Truth(os.environ.get("TRUTH"), self.rank)
        self.pid = os.getpid()
        self.iteration, self.losses = -1, []
        self.begun, self.slept, self.backwards = 0, {}, 0
        self.truth.write(rank=self.rank, world=self.world, pid=self.pid)

    # --- the true iterations

    def begin(self):
        self.iteration += 1
        self.slept, self.backwards = {}, 0
        self.begun = time.monotonic_ns()

    def end(self):
        """The iteration's work is done; the sleep of `host` still belongs to it."""
        committed = time.monotonic_ns()
        self.sleep("host")
        self.truth.write(i=self.iteration, begin=self.begun, commit=committed,
                         end=time.monotonic_ns(), sleep=self.slept, backwards=self.backwards)

    def iterations(self, loader, count=1):
        """Yields `count` batches at a time (a list if more than one); each turn is an iteration."""
        source = iter(loader)
        while True:
            before = self.iteration
            self.begin()
            try:
                batch = next(source) if count == 1 else [next(source)]
            except StopIteration:
                self.iteration = before
                return
            if count == 1:
                yield batch
            else:
                yield self._micro_batches(batch, source, count)
            self.end()

    @staticmethod
    def _micro_batches(first, source, count):
        yield first[0]
        for _ in range(count - 1):
            yield next(source)

    def sleep(self, stage, iteration=None):
        ms = self.fault.ms(stage, self.iteration if iteration is None else iteration)
        if ms:
            before = time.monotonic_ns()
            time.sleep(ms / 1000)
            self.slept[stage] = self.slept.get(stage, 0) + time.monotonic_ns() - before

    def backward(self, loss):
        self.backwards += 1
        loss.backward()

    def keep(self, loss):
        self.losses.append(loss.item() if isinstance(loss, torch.Tensor) else loss)

    def finish(self):
        print(f"rank {self.rank} losses " + " ".join(f"{x:.9g}" for x in self.losses))
        self.truth.write(done=True, iterations=self.iteration + 1, **process_state())
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()

    # --- parts to build a job from

    def samples(self, batches=STEPS):
        return Samples(self, batches * BATCH)

    def loader(self, batches=STEPS, **options):
        return DataLoader(self.samples(batches), batch_size=BATCH, **options)

    def model(self, **options):
        return Net(self, **options)

    def ddp(self, model, **options):
        return nn.parallel.DistributedDataParallel(model, **options) if self.world > 1 else model

    def optimizer(self, parameters, kind=torch.optim.SGD, **options):
        """An optimizer of that kind whose step can be slow."""
        job = self

        class Slow(kind):
            def step(self, closure=None):
                job.sleep("optimizer")
                return super().step(closure)

        Slow.__name__ = kind.__name__
        options.setdefault("lr", 0.05)
        return Slow(parameters, **options)


class Samples(Dataset):
    """Random samples, other ones on each rank; slow at the first sample of a batch if asked."""

    def __init__(self, job, count):
        generator = torch.Generator().manual_seed(100 + job.rank)
        self.job = job
        self.x = torch.randn(count, WIDTH, generator=generator)
        self.y = torch.randint(0, CLASSES, (count,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if i % BATCH == 0:  # a loader worker is another process and does not know the iteration
            self.job.sleep("input", None if os.getpid() == self.job.pid else i // BATCH)
        return self.x[i], self.y[i]


class Net(nn.Module):
    """A small classifier. While training it can be slow in forward, and in backward before the
    first gradient of a parameter exists, that is before any gradient is synchronised."""

    def __init__(self, job, inputs=WIDTH, outputs=CLASSES, hidden=64):
        super().__init__()
        self.job = job
        self.first = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU())
        self.middle = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU())
        self.last = nn.Linear(hidden, outputs)

    def body(self, x):
        return self.last(self.middle(self.first(x)))

    def forward(self, x):
        if self.training:
            self.job.sleep("forward")
        out = self.body(x)
        if self.training and out.requires_grad:
            out.register_hook(self.slow_gradient)
        return out

    def slow_gradient(self, gradient):
        self.job.sleep("backward")
        return gradient


loss_of = nn.functional.cross_entropy


def average_gradients(parameters, world):
    """Synchronises gradients by hand, one collective a parameter."""
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= world
