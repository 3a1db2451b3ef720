"""Rank 1 never comes to a collective: after 2 s the watchdog of rank 0 must abort it and end the
process."""
import datetime
import os
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
torch.cuda.set_device(RANK)
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=2))
x = torch.ones(1, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
print("ok started", flush=True)
if RANK == 1:
    time.sleep(8)
    os._exit(0)
dist.all_reduce(x)
torch.cuda.synchronize()
print("FAILED hang: it came back", flush=True)
