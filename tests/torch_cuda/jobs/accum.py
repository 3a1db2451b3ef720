"""Gradient accumulation: ACC micro-batches an iteration, all but the last under no_sync()."""
import contextlib

from cuda_job import STEPS, CudaJob, knob, loss_of

job = CudaJob()
accumulate = knob("ACC", 2)
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
for micro_batches in job.batches(job.loader(STEPS * accumulate), accumulate):
    for n, (x, y) in enumerate(micro_batches):
        with model.no_sync() if n < accumulate - 1 else contextlib.nullcontext():
            loss = loss_of(model(x), y) / accumulate
            job.backward(loss)
    job.keep(loss)
    optimizer.step()
    optimizer.zero_grad()
job.finish()
