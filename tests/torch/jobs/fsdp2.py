"""FSDP2 (fully_shard) on CPU."""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from common import Job, loss_of

job = Job()
model = job.model()
mesh = init_device_mesh("cpu", (job.world,))
for part in (model.first, model.middle, model):
    fully_shard(part, mesh=mesh)
optimizer = job.optimizer(model.parameters())
for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
