"""Trainings in which nobody is to blame: none of them may lead to a verdict that names a rank. The same
list for everybody; only the noise of the machine differs.
"""
import json
import subprocess
from functools import partial

import trainings
from trainings import ASYNCHRONOUS, LAGGARD

SHAPE = ("--ranks 4 --steps 80 --input-us 3000 --h2d-us 2000 --forward-us 8000 --backward-us 12000 "
         "--optimizer-us 3000 --host-us 2000")
# every rank sleeps in each stage, so that four of them keep pace on a few cores
EVEN = "*:input:4,*:forward:14,*:backward:14,*:optimizer:4,*:host:3"
DEVICE = {"PIN": 1, "ITEM": 10, "SIM_GEMM_US": 2500}


def record(directory, text):
    return trainings.run(text, directory)


def trainer(directory, options="", environment=None):
    return record(directory, trainings.trainer(directory, f"{SHAPE} {options}", environment))


def asynchronous(directory, options="", **environment):
    return trainer(directory, options, {**ASYNCHRONOUS, **environment})


def gloo(directory, job="ddp", fault="", **environment):
    words = ",".join(filter(None, (EVEN, fault)))
    return record(directory, trainings.torch(directory, "torch, Gloo", job,
                                             {"STEPS": 80, "FAULT": words, **environment}))


def nccl(directory, job="ddp", **environment):
    return record(directory, trainings.torch(directory, "torch, NCCL", job,
                                             {"STEPS": 70, **DEVICE, **environment}))


def rows_of(run):
    """The rows of a run as `laggard import` takes them."""
    done = subprocess.run([LAGGARD, "sql", run, "SELECT * FROM step", "--format", "json"],
                          stdout=subprocess.PIPE, text=True, check=True)
    columns = column_names()
    return [{k: v for k, v in row.items() if k in columns} for row in json.loads(done.stdout)]


def column_names():
    text = (trainings.TREE / "schema" / "columns.def").read_text()
    words = [line.split("(")[1].split(",")[0] for line in text.splitlines() if line.startswith("COLUMN(")]
    return {"rank", "step", *words}


def import_rows(directory, rows, name="imported"):
    run = directory / name
    text = "".join(json.dumps(row) + "\n" for row in rows)
    done = subprocess.run([LAGGARD, "import", "-", "-o", run], input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise RuntimeError(f"laggard import: {done.stdout}")
    return run


OFFSETS = (0, 11_560_000_000, 5_000_000_000, 3_000_000_000)


def other_clocks(rows, base=20_000_000_000):
    """Clocks of the ranks that are seconds apart, one of them 100 ppm fast."""
    for row in rows:
        row["start_ns"] += base - OFFSETS[row["rank"] % 4]
        if row["rank"] == 2:
            for name, value in row.items():
                if name.endswith("_ns") and name not in ("start_ns", "other_ns") and value:
                    row[name] = value + value // 10000
            parts = ("input_wait", "h2d", "forward", "backward", "optimizer")
            if row.get("other_ns") is not None:
                row["other_ns"] = row["dur_ns"] - sum(row[f"{p}_ns"] or 0 for p in parts)
    return rows


def clocks(directory):
    return import_rows(directory, other_clocks(rows_of(trainer(directory, "--jitter 3"))))


def turns(stage_ms, every=4):
    """Each rank in turn has a slow device."""
    return ";".join(f"gemm@{r}@step{r}-/{every}:{stage_ms}" for r in range(4))


# name, function of a directory; backend by name: all that begin with "torch" need PyTorch
CONTROLS = (
    ("trainer: natural jitter of 4 %", partial(trainer, options="--jitter 4")),
    ("trainer: jitter of 10 %", partial(trainer, options="--jitter 10")),
    ("trainer: stages vary by 60 %", partial(trainer, options="--jitter 60")),
    ("trainer: uneven loader work, hidden by a thread that reads ahead",
     partial(trainer, options="--prefetch --jitter 3 --fault 1:input:12000")),
    ("trainer: slow input everywhere", partial(trainer, options="--jitter 3 --fault *:input:30000")),
    ("trainer: slow backward everywhere", partial(trainer, options="--jitter 3 --fault *:backward:30000")),
    ("trainer: another rank reads slowly each step",
     partial(trainer, options="--fault 0:input:20000:rotate")),
    ("trainer: another rank is slow in backward each step",
     partial(trainer, options="--fault 2:backward:20000:rotate")),
    ("trainer: a pause of another rank each 13th step",
     partial(trainer, options="--fault 1:host:150000:rotate:every=13")),
    ("trainer: one spike on one rank", partial(trainer, options="--fault 1:forward:400000:from=40:to=40")),
    ("trainer: one spike on each of two ranks",
     partial(trainer, options="--fault 1:forward:300000:from=40:to=40 --fault 3:host:250000:from=17:to=17")),
    ("trainer: warm-up", partial(trainer, options="--jitter 3 --fault *:forward:300000:to=4")),
    ("trainer: the first read of one rank", partial(trainer, options="--fault 3:input:1500000:to=0")),
    ("trainer: slow collectives, all arrive together",
     partial(trainer, environment={"SIM_NCCL_US": 8000})),
    ("trainer: all ranks pause together each 15th step",
     partial(trainer, options="--fault *:host:200000:every=15:phase=7")),
    ("trainer: epochs begin slowly, with validation",
     partial(trainer, options="--epoch 20 --validate 3 --fault *:input:300000:every=20")),
    ("trainer: two micro-batches a step", partial(trainer, options="--accumulate 2 --jitter 4")),
    ("trainer: rank 0 reads for all, quickly", partial(trainer, options="--source rank0 --input-us 300")),
    ("rows: clocks of the ranks are seconds apart", clocks),
    ("trainer, asynchronous: natural jitter", partial(asynchronous, options="--jitter 4 --item")),
    ("trainer, asynchronous: another rank is slow each step",
     partial(asynchronous, options="--item --fault 0:forward:20000:rotate")),
    ("trainer, asynchronous: a slow host, hidden by the device's backlog",
     partial(asynchronous, options="--fault 2:host:8000")),
    ("trainer, asynchronous: slow collectives", partial(asynchronous, SIM_NCCL_US=8000)),
    ("trainer, asynchronous: all slow from a step on",
     partial(asynchronous, options="--fault *:backward:20000:from=40")),
    ("torch, Gloo: nobody is slow", gloo),
    ("torch, Gloo: another rank is slow each step", partial(gloo, fault="rotate:forward:40")),
    ("torch, Gloo: all pause together", partial(gloo, fault="*:host:250:every=15:from=7")),
    ("torch, Gloo: ranks with fewer local steps", partial(gloo, job="local_sgd", RAGGED=1)),
    ("torch, NCCL: nobody is slow", nccl),
    ("torch, NCCL: all devices are slow", partial(nccl, SIM_FACTOR=1.5)),
    ("torch, NCCL: another device is slow each step", partial(nccl, SIM_RULES=turns("x1.8"))),
    ("torch, NCCL: slow collectives", partial(nccl, SIM_NCCL_US=6000)),
)
QUICK = ("trainer: natural jitter of 4 %", "trainer: another rank is slow in backward each step",
         "trainer: one spike on one rank", "trainer: all ranks pause together each 15th step",
         "rows: clocks of the ranks are seconds apart",
         "trainer, asynchronous: slow collectives")


def chosen(quick):
    return [c for c in CONTROLS if not quick or c[0] in QUICK]
