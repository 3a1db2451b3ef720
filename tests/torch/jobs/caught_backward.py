"""An exception in the middle of backward, caught: every fifth batch is too much for a layer's backward, as
when memory runs out. The batch is given up on all ranks; with RETRY=1 it is tried again in two halves."""
import torch

from common import Job, average_gradients, knob, loss_of


class Fails(torch.autograd.Function):
    """The identity; its backward raises while `now` is set."""
    now = False

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if Fails.now:
            raise RuntimeError("out of memory")
        return gradient


job = Job()
model = job.model()
model.first.register_forward_hook(lambda module, inputs, output: Fails.apply(output))
optimizer = job.optimizer(model.parameters())
parameters = list(model.parameters())
caught = 0
for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    parts = [(x, y)]
    Fails.now = job.iteration % 5 == 4
    while parts:
        a, b = parts.pop()
        loss = loss_of(model(a), b)
        try:
            job.backward(loss)
        except RuntimeError as error:
            assert "out of memory" in str(error)
            caught += 1
            Fails.now = False
            optimizer.zero_grad()
            if knob("RETRY"):
                parts = [(x[:4], y[:4]), (x[4:], y[4:])]
            continue
        if not parts:
            average_gradients(parameters, job.world)
            optimizer.step()
    job.keep(loss)
print(f"rank {job.rank} caught {caught}")
job.finish()
