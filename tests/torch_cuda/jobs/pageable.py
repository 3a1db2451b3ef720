"""DDP with large batches from pageable memory: EXTRA megabytes more in each."""
from cuda_job import CudaJob, knob, loss_of, torch

job = CudaJob()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
extra = torch.zeros(knob("EXTRA", 4) << 18)
for x, y in job.batches(job.loader()):
    extra.to(job.device)
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
