"""Activation checkpointing; REENTRANT=1: backward passes nest."""
from torch.utils.checkpoint import checkpoint

from common import Job, Net, knob, loss_of

REENTRANT = bool(knob("REENTRANT", 0))


class Checkpointed(Net):
    def body(self, x):
        x = checkpoint(self.first, x, use_reentrant=REENTRANT)
        return self.last(checkpoint(self.middle, x, use_reentrant=REENTRANT))


job = Job()
model = job.ddp(Checkpointed(job))
optimizer = job.optimizer(model.parameters())
for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x.requires_grad_()), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
