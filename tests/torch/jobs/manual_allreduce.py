"""No DDP: gradients are averaged by hand between backward and the optimizer. ASYNC=1: all issued at
once, then waited for."""
import torch.distributed as dist

from common import Job, average_gradients, knob, loss_of

job = Job()
model = job.model()
optimizer = job.optimizer(model.parameters())
parameters = list(model.parameters())
for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    if knob("ASYNC"):
        works = [dist.all_reduce(p.grad, async_op=True) for p in parameters]
        for work in works:
            work.wait()
        for p in parameters:
            p.grad /= job.world
    else:
        average_gradients(parameters, job.world)
    optimizer.step()
    job.keep(loss)
job.finish()
