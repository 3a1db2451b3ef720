"""A loop with Hugging Face accelerate. ACC: micro-batches a step."""
import os
import sys

sys.path[:0] = [os.environ["JOBS"]]
from common import BATCH, STEPS, Fault, Net, Truth, knob, process_state  # noqa: E402

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from shared import Reader  # noqa: E402

job, accumulate = Reader(Fault, Truth), knob("ACC", 1)
torch.manual_seed(1)
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
model = Net(job)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(job.samples(STEPS * accumulate * job.world), batch_size=BATCH, num_workers=knob("WORKERS"))
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
job.begin()
for n, (x, y) in enumerate(loader):
    with accelerator.accumulate(model):
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        if accelerator.sync_gradients:
            job.sleep("optimizer")
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        job.end()
        if n + 1 < len(loader):
            job.begin()
job.truth.write(done=True, iterations=job.iteration + 1, **process_state())
accelerator.end_training()
