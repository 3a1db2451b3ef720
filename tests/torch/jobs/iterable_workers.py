"""An IterableDataset read by two loader workers, in three epochs. PERSIST=1: the workers stay."""
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from common import BATCH, CLASSES, STEPS, WIDTH, Job, knob, loss_of

EPOCHS = 3


class Stream(IterableDataset):
    def __init__(self, rank, count):
        super().__init__()
        self.rank, self.count = rank, count

    def __iter__(self):
        worker = get_worker_info()
        generator = torch.Generator().manual_seed(1000 * self.rank + worker.id)
        for _ in range(self.count // worker.num_workers):
            yield (torch.randn(WIDTH, generator=generator),
                   torch.randint(0, CLASSES, (), generator=generator))


job = Job()
loader = DataLoader(Stream(job.rank, STEPS // EPOCHS * BATCH), batch_size=BATCH, num_workers=2,
                    persistent_workers=bool(knob("PERSIST")))
model = job.ddp(job.model())
optimizer = job.optimizer(model.parameters())
for epoch in range(EPOCHS):
    for x, y in job.iterations(loader):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        job.backward(loss)
        optimizer.step()
        job.keep(loss)
job.finish()
