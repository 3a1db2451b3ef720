"""DDP under torch.profiler, which records some of the steps."""
from cuda_job import CudaJob, loss_of, torch

job = CudaJob()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
schedule = torch.profiler.schedule(wait=2, warmup=1, active=3, repeat=2)
seen = []


def ready(profiler):
    names = {event.name for event in profiler.events()}
    seen.append(sum("backward" in name.lower() for name in names) > 0)


with torch.profiler.profile(schedule=schedule, on_trace_ready=ready) as profiler:
    for x, y in job.batches(job.loader()):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        job.backward(loss)
        optimizer.step()
        job.keep(loss)
        profiler.step()
print(f"rank {job.rank} profiled {seen}", flush=True)
job.finish()
