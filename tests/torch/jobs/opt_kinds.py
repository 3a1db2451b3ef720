"""Other optimizers. KIND: lbfgs (the forward and three backwards lie inside step), adamw, foreach,
fused."""
import torch

from common import Job, knob, loss_of

job = Job()
kind = knob("KIND", "lbfgs")
model = job.ddp(job.model())
if kind == "lbfgs":
    optimizer = job.optimizer(model.parameters(), torch.optim.LBFGS, max_iter=2, max_eval=3)
elif kind == "adamw":
    optimizer = job.optimizer(model.parameters(), torch.optim.AdamW, lr=0.001)
else:
    optimizer = job.optimizer(model.parameters(), torch.optim.Adam, lr=0.001, **{kind: True})
for x, y in job.iterations(job.loader()):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model(x), y)  # pylint: disable=cell-var-from-loop
        job.backward(loss)
        return loss

    if kind == "lbfgs":
        job.keep(optimizer.step(closure))
    else:
        job.keep(closure())
        optimizer.step()
job.finish()
