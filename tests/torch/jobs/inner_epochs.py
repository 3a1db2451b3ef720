"""The shape of PPO: one batch of experience, four optimizer steps on it."""
from common import Job, loss_of

job = Job()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
for x, y in job.iterations(job.loader()):
    for _ in range(4):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        job.backward(loss)
        optimizer.step()
    job.keep(loss)
job.finish()
