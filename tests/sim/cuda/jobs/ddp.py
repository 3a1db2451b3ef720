"""Several ranks: collectives with known values, a DDP loop and FSDP2 with known device times.
EXPECT_DDP_MS and EXPECT_FSDP_MS: time of a step on every rank."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from checks import device_ms, run

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
D = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(D)
dist.init_process_group("nccl", device_id=D)
HALF = dist.new_group(list(range(RANKS // 2 + 1)))


def on_device(*values):
    return torch.tensor(values, dtype=torch.float32).to(D)


def equal(got, expected):
    return None if got == expected else f"{got}, not {expected}"


def near(got, variable):
    """0.1 ms: what the host could add if it were late is far more."""
    expected = float(os.environ[variable])
    exact = isinstance(got, float) and abs(got - expected) < 0.1
    return None if exact else f"{got}, not {expected}"


def all_reduces():
    x, y = on_device(1.0 + RANK), on_device(2.0 * RANK)
    work = dist.all_reduce(x, async_op=True)
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    work.wait()
    return equal((x.item(), y.item()), (RANKS * (RANKS + 1) / 2, 2.0 * RANKS - 2))


def moves():
    mine, n = on_device(*(10.0 * RANK + i for i in range(RANKS))), range(RANKS)
    gathered, part, columns = on_device(*[0.0] * RANKS), on_device(0.0), on_device(*[0.0] * RANKS)
    dist.all_gather_into_tensor(gathered, mine[:1].clone())
    dist.reduce_scatter_tensor(part, mine)
    dist.all_to_all_single(columns, mine)
    dist.broadcast(mine, 1)
    return equal((gathered.tolist(), part.item(), columns.tolist(), mine.tolist()),
                 ([10.0 * i for i in n], sum(10.0 * i + RANK for i in n),
                  [10.0 * i + RANK for i in n], [10.0 + i for i in n]))


def ring():
    out, received = on_device(10.0 * RANK), on_device(-1.0)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, out, (RANK + 1) % RANKS),
                                        dist.P2POp(dist.irecv, received, (RANK - 1) % RANKS)]):
        work.wait()
    return equal(received.item(), 10.0 * ((RANK - 1) % RANKS))


def part_of_the_ranks():
    x = on_device(1.0)
    if RANK <= RANKS // 2:
        dist.all_reduce(x, group=HALF)
    dist.barrier()
    return equal(x.item(), RANKS // 2 + 1.0 if RANK <= RANKS // 2 else 1.0)


def model(width=256, hidden=4):
    layers = [nn.Linear(32, width)]
    for _ in range(hidden):
        layers += [nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(width, 10)).to(D)


TICK = on_device(1.0)


def together():
    dist.all_reduce(TICK)  # on the compute stream: the devices leave it at the same time


def ddp():
    """17 gemms a step: 6 forward, 11 backward; 5 buckets."""
    net = DistributedDataParallel(model(), device_ids=[D.index], bucket_cap_mb=0.2,
                                  gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    data = TensorDataset(torch.randn(16 * 14, 32), torch.randint(0, 10, (16 * 14,)))

    def step(x, y):
        optimizer.zero_grad()
        loss_of(net(x), y).backward()
        optimizer.step()
    # DDP synchronises the host in its iterations 2 to 11 for its own statistics
    for x, y in DataLoader(data, batch_size=16):
        x, y = x.to(D, non_blocking=True), y.to(D, non_blocking=True)
        step(x, y)
    got = device_ms(lambda: [step(x, y) for _ in range(10)], before=together)
    return near(got if isinstance(got, str) else got / 10, "EXPECT_DDP_MS")


def fsdp():
    net = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3))).to(D)
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    x = torch.randn(4, 64).to(D)

    def step():
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    for _ in range(3):
        step()
    got = device_ms(lambda: [step() for _ in range(5)], before=together)
    return near(got if isinstance(got, str) else got / 5, "EXPECT_FSDP_MS")


run(all_reduces, moves, ring, part_of_the_ranks, ddp, fsdp)
dist.destroy_process_group()
sys.stdout.flush()
