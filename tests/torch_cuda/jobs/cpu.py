"""Training on the CPU over Gloo, in a process that has asked CUDA for its devices."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "torch" / "jobs"))

import torch  # noqa: E402

from common import Job, loss_of  # noqa: E402

torch.cuda.init()
job = Job()
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
for x, y in job.iterations(job.loader()):
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    job.backward(loss)
    optimizer.step()
    job.keep(loss)
job.finish()
