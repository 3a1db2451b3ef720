"""Two models, two optimizers, two backwards an iteration."""
import torch

from common import BATCH, Job, WIDTH

job = Job()
generator = job.ddp(job.model(inputs=16, outputs=WIDTH))
critic = job.ddp(job.model(outputs=1))
generator_opt = job.optimizer(generator.parameters(), torch.optim.Adam, lr=0.001)
critic_opt = job.optimizer(critic.parameters(), torch.optim.Adam, lr=0.001)
noise = torch.Generator().manual_seed(7 + job.rank)
for x, _ in job.iterations(job.loader()):
    fake = generator(torch.randn(BATCH, 16, generator=noise))
    critic_opt.zero_grad()
    both = critic(torch.cat([x, fake.detach()]))
    loss = both[BATCH:].mean() - both[:BATCH].mean()
    job.backward(loss)
    critic_opt.step()
    generator_opt.zero_grad()
    judge = critic.module if job.world > 1 else critic
    job.backward(-judge.body(fake).mean())
    generator_opt.step()
    job.keep(loss)
job.finish()
