"""One process, one device: what PyTorch needs of CUDA, with known times and bytes."""
import io
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from checks import cudart, device_ms, run

D = "cuda"


def devices():
    if not torch.cuda.is_available() or torch.cuda.device_count() != 4:
        return f"available {torch.cuda.is_available()}, {torch.cuda.device_count()} devices"
    return equal((torch.cuda.get_device_name(0), torch.cuda.get_device_capability()),
                 ("Stand-in GPU", (8, 0)))


def loaded_where_the_real_ones_lie():
    torch.ones(1, device=D)
    farm = os.environ["PYTHONPATH"].split(":")[0]
    with open("/proc/self/maps", encoding="ascii") as maps:
        paths = {line.split()[-1] for line in maps if ".so" in line}
    for name in ("libcudart.so", "libcublas.so", "libnccl.so"):
        found = [p for p in paths if f"/{name}" in p]
        if len(found) != 1 or not found[0].startswith(f"{farm}/nvidia/"):
            return found
    return None


def bytes_travel():
    x = torch.arange(1000)
    device = x.to(D)
    other = torch.empty_like(device)
    other.copy_(device)
    pinned = x.pin_memory()
    if not pinned.is_pinned() or x.is_pinned():
        return "pinned memory is not known"
    late = pinned.to(D, non_blocking=True)
    back = torch.empty(1000, dtype=torch.int64, pin_memory=True)
    back.copy_(late, non_blocking=True)
    torch.cuda.synchronize()
    return None if torch.equal(other.cpu(), x) and torch.equal(back, x) else (other, back)


def equal(got, expected):
    return None if got == expected else f"{got}, not {expected}"


def kernels_take_their_time():
    os.environ["SIM_KERNEL_US"] = "200"
    cudart().simRank(0)  # reads the settings anew
    x = torch.zeros(8, device=D)
    got = device_ms(lambda: [x.add_(1) for _ in range(100)])
    os.environ["SIM_KERNEL_US"] = "0"
    cudart().simRank(0)
    return equal(got, 20.0)


def sleep_is_exact():
    return equal(device_ms(lambda: torch.cuda._sleep(7_000_000)), 7.0)


def streams_overlap():
    side = [torch.cuda.Stream(), torch.cuda.Stream()]

    def work():
        for stream, ms in zip(side, (10, 6)):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(ms * 1_000_000)
        for stream in side:
            torch.cuda.current_stream().wait_stream(stream)
    return equal(device_ms(work), 10.0)


def gemms_take_their_time():
    layer, x = nn.Linear(8, 8, device=D), torch.zeros(4, 8, device=D)
    layer(x).sum().backward()
    # the forward and the gradient of the weight
    return equal(device_ms(lambda: layer(x).sum().backward()), 2.0)


def queries_leave_no_error():
    torch.cuda._sleep(20_000_000)
    event = torch.cuda.Event()
    event.record()
    asked = event.query()
    torch.ones(3, device=D).relu_()
    event.synchronize()
    return None if not asked and event.query() else asked


def graphs_replay():
    layer, x = nn.Linear(8, 8, device=D), torch.zeros(4, 8, device=D)
    source, to = torch.arange(5.0, device=D), torch.zeros(5, device=D)
    layer(x).sum().backward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer(x).sum().backward()
        to.copy_(source)
    source.copy_(torch.arange(5.0) + 10)
    got = device_ms(lambda: [graph.replay() for _ in range(3)])
    return equal((got, to.tolist()), (6.0, [10.0, 11.0, 12.0, 13.0, 14.0]))


def synchronising_ends_a_capture():
    """Last: PyTorch's random number generator does not recover from it."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            torch.cuda.synchronize()
    except RuntimeError as error:
        return None if "900" in str(error) or "901" in str(error) else str(error)
    return "no error"


def mixed_precision():
    layer = nn.Linear(8, 8, device=D)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    scaler = torch.amp.GradScaler(D)
    for _ in range(3):
        with torch.autocast(D, dtype=torch.float16):
            loss = layer(torch.randn(4, 8, device=D)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def loader_pins_memory():
    data = torch.arange(64.0).reshape(32, 2)
    seen = []
    for (batch,) in DataLoader(TensorDataset(data), batch_size=4, num_workers=1, pin_memory=True):
        if not batch.is_pinned():
            return "not pinned"
        seen.append(batch.to(D, non_blocking=True))
    return None if torch.equal(torch.cat([b.cpu() for b in seen]), data) else seen


def transformer():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).to(D)
    words = nn.Embedding(100, 64).to(D)
    out = layer(words(torch.randint(0, 100, (2, 8)).to(D)))
    F.cross_entropy(out.mean(1), torch.tensor([1, 2], device=D)).backward()
    q = torch.randn(1, 2, 16, 64, device=D, dtype=torch.bfloat16, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()


def saves_and_loads():
    state, file = {"w": torch.arange(4.0).to(D)}, io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return equal(torch.load(file)["w"].tolist(), [0.0, 1.0, 2.0, 3.0])


def profiler_works():
    with torch.profiler.profile() as profile:
        torch.ones(3, device=D).add_(1)
    return None if profile.events() else "no events"


run(devices, loaded_where_the_real_ones_lie, bytes_travel, kernels_take_their_time, sleep_is_exact,
    streams_overlap, gemms_take_their_time, queries_leave_no_error, graphs_replay,
    mixed_precision, loader_pins_memory, transformer, saves_and_loads, profiler_works,
    synchronising_ends_a_capture)
sys.stdout.flush()
