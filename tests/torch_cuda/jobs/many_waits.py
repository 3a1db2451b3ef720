"""In each step WAITS asynchronous all-reduces, each of them waited for before the next work."""
from cuda_job import CudaJob, dist, knob, loss_of, torch

job = CudaJob()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
value = torch.zeros(4, device=job.device)
for x, y in job.batches(job.loader()):
    for _ in range(knob("WAITS", 80)):
        dist.all_reduce(value, async_op=True).wait()
        value.add_(1)
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
