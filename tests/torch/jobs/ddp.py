"""Plain DDP. WORKERS: loader workers. EPOCHS: passes over the data. LOG=1: prints each step.
EXIT: exit status."""
import sys

from common import Job, STEPS, knob, loss_of

job = Job()
epochs = knob("EPOCHS", 1)
loader = job.loader(STEPS // epochs, num_workers=knob("WORKERS", 0))
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters(), momentum=0.9)
for epoch in range(epochs):
    for x, y in job.iterations(loader):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        job.backward(loss)
        optimizer.step()
        job.keep(loss)
        if knob("LOG"):
            print(f"rank {job.rank} step {job.iteration} loss {float(loss):.6f}", flush=True)
job.finish()
sys.exit(knob("EXIT"))
