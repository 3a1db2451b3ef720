"""Every kind of collective that Gloo has, in each iteration of a training; a second group too."""
import torch
import torch.distributed as dist

from common import Job, loss_of

job = Job()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
second = dist.new_group(list(range(job.world)))
mine = torch.full((4,), float(job.rank))


def parts():
    return [torch.zeros(4) for _ in range(job.world)]


def talk():
    total = mine.clone()
    dist.all_reduce(total)
    dist.all_reduce(total, group=second)
    dist.broadcast(total, 0)
    dist.reduce(total, 0)
    gathered = parts()
    dist.all_gather(gathered, mine)
    dist.gather(mine, parts() if job.rank == 0 else None, 0)
    dist.scatter(torch.zeros(4), parts() if job.rank == 0 else None, 0)
    objects = [None] * job.world
    dist.all_gather_object(objects, {"rank": job.rank})
    assert [o["rank"] for o in objects] == list(range(job.world))
    to, origin = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    received = torch.zeros(4)
    requests = [dist.isend(mine, to), dist.irecv(received, origin)]
    for request in requests:
        request.wait()
    assert received[0] == origin
    dist.barrier()
    return sum(float(g[0]) for g in gathered)


for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
    job.keep(talk())
job.finish()
