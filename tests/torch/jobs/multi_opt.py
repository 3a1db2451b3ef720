"""Three optimizers for the parts of one model."""
import torch

from common import Job, loss_of

job = Job()
net = job.model()
model = job.ddp(net)
optimizers = [job.optimizer(net.first.parameters()),
              job.optimizer(net.middle.parameters(), torch.optim.Adam, lr=0.001),
              job.optimizer(net.last.parameters(), momentum=0.9)]
for x, y in job.iterations(job.loader()):
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    for optimizer in optimizers:
        optimizer.step()
    job.keep(loss)
job.finish()
