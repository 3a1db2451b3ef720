"""A long evaluation, BATCHES of them, between two training steps."""
from cuda_job import CudaJob, knob, loss_of, torch

job = CudaJob()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
held_out = [(x, y) for x, y in job.loader(4)]
for x, y in job.batches(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
    if job.iteration == knob("AT", 16):
        model.eval()
        with torch.no_grad():
            for _ in range(knob("BATCHES", 300)):
                for a, b in job.loader(4):
                    a, b = job.to_device((a, b))
                    loss_of(model(a), b)
        model.train()
job.finish()
