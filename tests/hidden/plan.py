"""The sealed list: faults drawn from a seed, one a training. Who is slow, where, how much and when is
decided here and told to nobody but the training itself.

A size is a part of the unslowed step, as a mean over the steps in which the fault is active at all; a
periodic one is so much larger in its steps. Half-way and periodic faults are of 30 % and more.
"""
import random

# backend: (how many of 50, stages drawn in turn)
BACKENDS = {
    "trainer": (14, ("input", "h2d", "forward", "backward", "optimizer", "host")),
    "trainer, asynchronous": (10, ("input", "h2d", "forward", "backward", "optimizer", "host")),
    "torch, Gloo": (12, ("input", "forward", "backward", "optimizer", "host")),
    "torch, NCCL": (14, ("device", "input", "device", "h2d", "forward", "backward", "optimizer", "host")),
}
QUICK = {  # the dozen of every `make test`
    "trainer": (6, BACKENDS["trainer"][1]),
    "trainer, asynchronous": (4, BACKENDS["trainer, asynchronous"][1]),
    "torch, Gloo": (1, BACKENDS["torch, Gloo"][1]),
    "torch, NCCL": (1, ("device",)),
}
SMALLEST, LARGEST = 0.12, 0.60
DEVICE_SMALLEST = 0.15  # a device that much slower
PATTERNS = ("always",) * 8 + ("late", "periodic")


def share(table, count):
    """How many of `count` each backend gets."""
    whole = sum(n for n, _ in table.values())
    shares = {name: n * count // whole for name, (n, _) in table.items()}
    for name in list(table)[:count - sum(shares.values())]:
        shares[name] += 1
    return shares


def trainer_shape(draw, asynchronous, stage):
    """Options of the C trainer: times in us."""
    times = {name: draw.randint(low, high) for name, (low, high) in {
        "input": (2000, 6000), "h2d": (1000, 4000), "forward": (6000, 12000),
        "backward": (9000, 18000), "optimizer": (2000, 5000), "host": (1000, 3000)}.items()}
    return {"times": times, "jitter": draw.randint(0, 4), "buckets": draw.randint(2, 6),
            "launches": draw.randint(2, 6), "seed": draw.randint(1, 1000000),
            # what the host does is hidden behind the device's backlog unless it waits each step
            "item": asynchronous and (stage in ("input", "host") or draw.random() < 0.5)}


def torch_shape(draw, backend, stage):
    """Sleeps of every rank in ms, so that ranks sharing a few cores keep pace, and the job."""
    job = draw.choice(("ddp", "ddp", "ddp_accum"))
    if backend == "torch, NCCL":
        job = "pageable" if stage == "h2d" else "ddp"
    return {"times": {"input": draw.randint(2, 6), "forward": draw.randint(10, 18),
                      "backward": draw.randint(10, 18), "optimizer": draw.randint(2, 6),
                      "host": draw.randint(1, 4)},
            "job": job, "item": draw.choice((0, 1, 1, 10))}


def draw_fault(draw, backend, stage, steps):
    fault = {"stage": stage, "rank": draw.randrange(4), "pattern": draw.choice(PATTERNS)}
    if stage in ("device", "h2d") and backend == "torch, NCCL":
        fault["pattern"] = "always"  # settings of the stand-ins, which do not change
    smallest = 0.30 if fault["pattern"] != "always" else DEVICE_SMALLEST if stage == "device" else SMALLEST
    fault["size"] = round(draw.uniform(smallest, LARGEST), 3)
    fault["first"] = draw.randint(steps // 4, steps // 2) if fault["pattern"] == "late" else 0
    fault["every"] = draw.randint(3, steps // 10) if fault["pattern"] == "periodic" else 1
    return fault


def make(seed, count, quick=False):
    """The list: a dictionary a training."""
    draw = random.Random(f"hidden rank {seed}")
    table, entries = QUICK if quick else BACKENDS, []
    for backend, wanted in share(table, count).items():
        stages = table[backend][1]
        turn = draw.randrange(len(stages))
        for n in range(wanted):
            stage, steps = stages[(turn + n) % len(stages)], draw.randint(60, 100)
            shape = torch_shape(draw, backend, stage) if backend.startswith("torch") else (
                trainer_shape(draw, backend != "trainer", stage))
            fault = draw_fault(draw, backend, stage, steps)
            if fault["pattern"] == "periodic" and "item" in shape:
                shape["item"] = 1  # a backlog would hide a pause now and then
            entries.append({"backend": backend, "ranks": 4, "steps": steps, **shape, "fault": fault})
    draw.shuffle(entries)
    return entries
