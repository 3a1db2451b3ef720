"""One process, no process group. RAISE=N: the backward of iteration N fails; the script goes on."""
from common import Job, knob, loss_of

job = Job(rank=0, world=1)
model = job.model()
optimizer = job.optimizer(model.parameters(), momentum=0.9)


def refuse(_gradient):
    raise RuntimeError("out of memory (not really)")


for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    out = model(x)
    if job.iteration == knob("RAISE", -1):
        out.register_hook(refuse)
    loss = loss_of(out, y)
    try:
        job.backward(loss)
    except RuntimeError as error:
        print("skipped a batch:", error)
        continue
    optimizer.step()
    job.keep(loss)
job.finish()
