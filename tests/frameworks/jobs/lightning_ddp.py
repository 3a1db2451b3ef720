"""Lightning's Trainer with strategy ddp. ACC: micro-batches a step. EVAL: a validation every so many
batches."""
import logging
import os
import sys
import tempfile

sys.path[:0] = [os.environ["JOBS"]]
from common import BATCH, STEPS, Fault, Net, Truth, knob, process_state  # noqa: E402

import lightning  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from shared import Reader  # noqa: E402

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
job, accumulate, evaluate = Reader(Fault, Truth), knob("ACC", 1), knob("EVAL")


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net(job)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("loss", nn.functional.cross_entropy(self.net(x), y), sync_dist=True)

    def on_train_batch_start(self, batch, index):
        if index % accumulate == 0:
            job.begin()

    def on_train_batch_end(self, outputs, batch, index):
        if (index + 1) % accumulate == 0:
            job.end()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


torch.set_num_threads(1)
lightning.seed_everything(1, verbose=False)
trainer = lightning.Trainer(
    accelerator="cpu", strategy="ddp", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")), max_epochs=1,
    accumulate_grad_batches=accumulate, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, num_sanity_val_steps=2 if evaluate else 0, val_check_interval=evaluate or None,
    default_root_dir=tempfile.mkdtemp())
trainer.fit(Module(), DataLoader(job.samples(STEPS * accumulate * job.world), batch_size=BATCH,
                                 num_workers=knob("WORKERS")),
            DataLoader(job.samples(4 * job.world), batch_size=BATCH) if evaluate else None)
job.truth.write(done=True, iterations=job.iteration + 1, **process_state())
