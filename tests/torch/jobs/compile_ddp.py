"""torch.compile of the model (backend aot_eager). COMPILE_OPT=1: of the optimizer step too."""
import torch

from common import Job, knob, loss_of

job = Job()
net = job.model()
net.body = torch.compile(net.body, backend="aot_eager")
model = job.ddp(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
update = optimizer.step
if knob("COMPILE_OPT"):
    update = torch.compile(optimizer.step, backend="aot_eager")
for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    job.sleep("optimizer")
    update()
    job.keep(loss)
job.finish()
