"""Batches from a plain generator: nothing of torch.utils.data is seen."""
from common import BATCH, Job, loss_of

job = Job()
samples = job.samples()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())


def batches():
    for at in range(0, len(samples), BATCH):
        job.sleep("input")
        yield samples.x[at:at + BATCH], samples.y[at:at + BATCH]


for x, y in job.iterations(batches()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
