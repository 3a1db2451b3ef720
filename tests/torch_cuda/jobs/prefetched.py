"""The loop of HF's Trainer and Accelerate: batches are one ahead, and copied to the device inside the
loader's __next__, between what is training. ACC micro-batches an iteration."""
import contextlib

from cuda_job import STEPS, CudaJob, knob, loss_of

job = CudaJob()
accumulate = knob("ACC", 1)
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())


def one_ahead(loader):
    current = None
    for batch in loader:
        batch = job.to_device(batch)
        if current is not None:
            yield current
        current = batch
    yield current


source = one_ahead(job.loader(STEPS * accumulate))
for _ in range(STEPS):
    job.begin()
    for n in range(accumulate):
        x, y = next(source)
        with model.no_sync() if n < accumulate - 1 else contextlib.nullcontext():
            job.backward(loss_of(model(x), y))
    optimizer.step()
    optimizer.zero_grad()
    job.end()
job.finish()
