"""The optimizer runs inside backward: as soon as a parameter's gradient is there, it is averaged
and applied."""
import torch.distributed as dist

from common import Job, loss_of

job = Job()
model = job.model()
kept = []  # the hooks live as long as these nodes


def apply_at_once(parameter):
    optimizer = job.optimizer([parameter])

    def hook(*_):
        dist.all_reduce(parameter.grad)
        parameter.grad /= job.world
        optimizer.step()
        optimizer.zero_grad()

    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    node.register_hook(hook)
    kept.append(node)


for p in model.parameters():
    apply_at_once(p)
for x, y in job.iterations(job.loader()):
    loss = loss_of(model(x), y)
    job.backward(loss)
    job.keep(loss)
job.finish()
