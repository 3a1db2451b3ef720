"""Mixed precision with a gradient scaler, unscale and clipping; each 7th iteration overflows, and
its optimizer step is left out."""
import torch

from common import Job, loss_of

job = Job()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())


class OwnScaler:
    """Where torch has no scaler for the CPU."""

    def __init__(self):
        self.factor = 1024.0

    def scale(self, value):
        return value * self.factor

    def unscale_(self, opt):
        for group in opt.param_groups:
            for p in group["params"]:
                p.grad /= self.factor

    @staticmethod
    def step(opt):
        if all(p.grad.isfinite().all() for g in opt.param_groups for p in g["params"]):
            opt.step()

    def update(self):
        pass


try:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
except (AttributeError, TypeError):
    scaler = OwnScaler()

for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    loss = loss_of(out.float(), y)
    if job.iteration % 7 == 6:
        loss = loss * float("inf")
    job.backward(scaler.scale(loss))
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    job.keep(loss)
job.finish()
