"""transformers.Trainer. ACC: micro-batches a step. WORKERS: loader workers. EVAL: an evaluation every so
many steps. The truth is written by a callback."""
import os
import sys
import tempfile

sys.path[:0] = [os.environ["JOBS"]]
from common import BATCH, STEPS, Fault, Net, Truth, knob, process_state  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

from shared import Reader  # noqa: E402


class Classifier(Net):
    def forward(self, x, labels=None):
        loss = nn.functional.cross_entropy(super().forward(x), labels)
        return {"loss": loss, "logits": x.new_zeros(len(x), 8)}


class Keeper(TrainerCallback):
    """Counts the steps; slow between them if asked."""

    def __init__(self, job):
        self.job = job

    def on_step_begin(self, args, state, control, **kwargs):
        self.job.begin()

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.job.sleep("optimizer_end")

    def on_step_end(self, args, state, control, **kwargs):
        self.job.end()


job = Reader(Fault, Truth)
accumulate, evaluate = knob("ACC", 1), knob("EVAL")
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=BATCH, max_steps=STEPS,
    gradient_accumulation_steps=accumulate, dataloader_num_workers=knob("WORKERS"), report_to=[],
    save_strategy="no", logging_steps=10, disable_tqdm=True, seed=1, ddp_backend="gloo",
    eval_strategy="steps" if evaluate else "no", eval_steps=evaluate or None)
data = job.samples(STEPS * accumulate * job.world, labels="labels")
trainer = Trainer(model=Classifier(job), args=arguments, train_dataset=data, callbacks=[Keeper(job)],
                  eval_dataset=job.samples(4, labels="labels") if evaluate else None)
torch.set_num_threads(1)
trainer.train()
job.truth.write(done=True, iterations=job.iteration + 1, **process_state())
