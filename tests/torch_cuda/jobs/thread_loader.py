"""A background thread runs the loader and puts batches into a queue (as MONAI's ThreadDataLoader does); the
training thread only takes them out. READ_MS: time that a batch costs the thread."""
import queue
import threading
import time

from cuda_job import CudaJob, knob, loss_of

job = CudaJob()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
ready = queue.Queue(maxsize=2)


def fill():
    for batch in job.loader():
        time.sleep(knob("READ_MS", 10) / 1000)
        ready.put(batch)
    ready.put(None)


threading.Thread(target=fill, daemon=True).start()
for batch in iter(ready.get, None):
    job.begin()
    x, y = job.to_device(batch)
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
    job.end()
job.finish()
