"""Gradient accumulation: ACC micro-batches an iteration, all but the last under no_sync()."""
import contextlib

from common import Job, STEPS, knob, loss_of

job = Job()
accumulate = knob("ACC", 4)
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
for micro_batches in job.iterations(job.loader(STEPS * accumulate), accumulate):
    for n, (x, y) in enumerate(micro_batches):
        with model.no_sync() if n < accumulate - 1 else contextlib.nullcontext():
            loss = loss_of(model(x), y) / accumulate
            job.backward(loss)
    job.keep(loss)
    optimizer.step()
    optimizer.zero_grad()
job.finish()
