"""No Optimizer at all: the parameters are updated by hand."""
import torch

from common import Job, loss_of

job = Job()
model = job.ddp(job.model())
for x, y in job.iterations(job.loader()):
    loss = loss_of(model(x), y)
    job.backward(loss)
    job.sleep("optimizer")
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.05 * p.grad
            p.grad = None
    job.keep(loss)
job.finish()
