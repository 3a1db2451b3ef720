"""One process, one device, no collectives."""
from cuda_job import CudaJob, loss_of

job = CudaJob()
model = job.model()
optimizer = job.optimizer(model.parameters())
for x, y in job.batches(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
