"""DDP on streams of the program's own. SIDE=1: batches are copied on a stream beside; without: the whole
training lies on another than the default stream, from iteration FROM on."""
import contextlib

from cuda_job import CudaJob, knob, loss_of, torch

job = CudaJob()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
stream = torch.cuda.Stream()


def copied(batch):
    with torch.cuda.stream(stream):
        batch = [x.to(job.device, non_blocking=True) for x in batch]
    torch.cuda.current_stream().wait_stream(stream)
    return batch


for batch in job.iterations(job.loader()):
    moved = not knob("SIDE", 0) and job.iteration >= knob("FROM", 0)
    with torch.cuda.stream(stream) if moved else contextlib.nullcontext():
        x, y = copied(batch) if knob("SIDE", 0) else job.to_device(batch)
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        job.backward(loss)
        optimizer.step()
        job.keep(loss)
job.finish()
