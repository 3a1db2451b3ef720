"""Plain DDP. HOOK=python: a communication hook written in Python. SYNC=1: a synchronous all-reduce of the
loss in each step. AMP=1: mixed precision and clipping; AMP=scaler: with a gradient scaler, which waits for
the device in each step."""
import contextlib

from cuda_job import CudaJob, dist, knob, loss_of, torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

job = CudaJob()
model = job.ddp(job.model())
if knob("HOOK", "") == "python":
    model.register_comm_hook(None, default_hooks.allreduce_hook)
optimizer = job.optimizer(model.parameters(), momentum=0.9)
amp = knob("AMP", "")
scaler = torch.amp.GradScaler("cuda", enabled=amp == "scaler")
precision = torch.autocast("cuda", dtype=torch.float16) if amp else contextlib.nullcontext()
for x, y in job.batches(job.loader()):
    optimizer.zero_grad()
    with precision:
        loss = loss_of(model(x), y)
    job.backward(scaler.scale(loss))
    if amp:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if knob("SYNC", 0):
        dist.all_reduce(loss.detach())
    job.keep(loss)
job.finish()
