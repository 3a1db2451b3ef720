"""Local SGD: parameters are averaged after each 4th local step. RAGGED=1: odd ranks take only 3."""
import torch
import torch.distributed as dist

from common import Job, STEPS, knob, loss_of

job = Job()
local = 3 if knob("RAGGED") and job.rank % 2 else 4
model = job.model()
optimizer = job.optimizer(model.parameters())
for x, y in job.iterations(job.loader(STEPS // 4 * local)):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
    if job.iteration % local == local - 1:
        with torch.no_grad():
            for p in model.parameters():
                dist.all_reduce(p)
                p /= job.world
job.finish()
