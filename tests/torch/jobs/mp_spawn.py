"""Ranks made by torch.multiprocessing.spawn: no RANK in any environment."""
import os
import socket
import sys

import torch.multiprocessing as mp

from common import Job, loss_of


def train(rank, world, port):
    job = Job(rank, world, f"tcp://127.0.0.1:{port}")
    model = job.ddp(job.model())
    optimizer = job.optimizer(model.parameters())
    for x, y in job.iterations(job.loader()):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        job.backward(loss)
        optimizer.step()
        job.keep(loss)
    job.finish()
    sys.stdout.flush()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    count = int(os.environ.pop("RANKS", "2"))
    mp.spawn(train, (count, free), nprocs=count)
