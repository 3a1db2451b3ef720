"""An evaluation after each 5th iteration, its metric averaged. MODE: no_grad, inference, or ddp
(no_grad, through the DDP wrapper)."""
import torch
import torch.distributed as dist

from common import Job, knob, loss_of

job = Job()
mode = knob("MODE", "no_grad")
bare = job.model()
model = job.ddp(bare)
optimizer = job.optimizer(model.parameters())
held_out = job.loader(3)


def evaluate():
    net = model if mode == "ddp" else bare
    net.eval()
    total = torch.zeros(1)
    with torch.inference_mode() if mode == "inference" else torch.no_grad():
        for x, y in held_out:
            total += loss_of(net(x), y)
    net.train()
    total = total.clone()
    dist.all_reduce(total)
    return total.item()


for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
    if job.iteration % 5 == 4:
        job.keep(evaluate())
job.finish()
