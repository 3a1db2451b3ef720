"""What the framework jobs share: data that is slow on one rank if asked, and the truth of what happened. The
faults and the model are those of tests/torch/jobs/common.py."""
import os
import time

import torch
from common import BATCH, CLASSES, WIDTH
from torch.utils.data import Dataset


class Reader:
    """Rank, faults and truth of this process."""

    def __init__(self, fault, truth):
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.fault = fault(os.environ.get("FAULT", ""), self.rank, self.world)
        self.truth = truth(os.environ.get("TRUTH"), self.rank)
        self.pid, self.iteration, self.begun, self.slept = os.getpid(), -1, 0, {}
        self.truth.write(rank=self.rank, world=self.world, pid=self.pid)

    def begin(self):
        self.iteration += 1
        self.begun = time.monotonic_ns()

    def end(self):
        committed = time.monotonic_ns()
        self.sleep("host")
        self.truth.write(i=self.iteration, begin=self.begun, commit=committed, end=time.monotonic_ns(),
                         sleep=self.slept)
        self.slept = {}

    def sleep(self, stage, iteration=None):
        ms = self.fault.ms(stage, max(self.iteration, 0) if iteration is None else iteration)
        if ms:
            before = time.monotonic_ns()
            time.sleep(ms / 1000)
            self.slept[stage] = self.slept.get(stage, 0) + time.monotonic_ns() - before

    def samples(self, batches, labels=None):
        return Samples(self, batches * BATCH, labels)


class Samples(Dataset):
    """Random samples; every BATCH-th that this process asks for is slow if asked."""

    def __init__(self, job, count, labels):
        generator = torch.Generator().manual_seed(7)
        self.job, self.labels, self.asked = job, labels, 0
        self.x = torch.randn(count, WIDTH, generator=generator)
        self.y = torch.randint(0, CLASSES, (count,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if self.asked % BATCH == 0:
            self.job.sleep("input", self.asked // BATCH)
        self.asked += 1
        return {"x": self.x[i], self.labels: self.y[i]} if self.labels else (self.x[i], self.y[i])
