"""Each 4th iteration rank 0 writes a checkpoint, and all meet in a barrier."""
import io

import torch
import torch.distributed as dist

from common import Job, loss_of

job = Job()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
    if job.iteration % 4 == 3:
        if job.rank == 0:
            torch.save(model.state_dict(), io.BytesIO())
        dist.barrier()
job.finish()
