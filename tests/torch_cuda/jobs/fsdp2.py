"""FSDP2: every linear layer sharded by itself."""
from torch.distributed.fsdp import fully_shard

from cuda_job import CudaJob, loss_of, nn

job = CudaJob()
model = job.model()
for part in model.layers:
    if isinstance(part, nn.Linear):
        fully_shard(part)
fully_shard(model)
optimizer = job.optimizer(model.parameters())
for x, y in job.batches(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
