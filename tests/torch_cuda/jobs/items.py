"""Scalars are read from the device all the time: READS of them in each forward."""
from cuda_job import CudaJob, knob, loss_of

job = CudaJob()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
for x, y in job.batches(job.loader()):
    optimizer.zero_grad()
    out = model(x)
    for _ in range(knob("READS", 15)):
        out[0, 0].item()
    loss = loss_of(out, y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
