"""Trainings as shell scripts: a training is started by `laggard run sh SCRIPT`, so that neither the
command line nor the environment that laggard may record tells which fault was put in. The script is
taken away before laggard is asked.
"""
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
BUILD = TREE / "build"
LAGGARD = os.environ.get("LAGGARD", str(BUILD / "laggard"))
TRAINER = BUILD / "tests" / "trainer"
ASYNCHRONOUS = {"LD_LIBRARY_PATH": BUILD / "tests" / "sim-cuda" / "13", "SIM_KERNEL_US": 0,
                "SIM_BLOCK_NS": 1000}
# on the asynchronous stand-ins only gemms and collectives take time
DEVICE = {"SIM_KERNEL_US": 0, "SIM_COPY_US": 0, "SIM_COPY_MBPS": 0, "SIM_D2D_MBPS": 0,
          "SIM_NCCL_US": 100, "SIM_NCCL_MBPS": 0}
GEMMS = 17        # of a step of the job
HOST_GEMM_US = 100
PAGEABLE_COPIES = 3
OVERHEAD_MS = {"torch, Gloo": 8.0, "torch, NCCL": 14.0}  # of a step beside its sleeps, on two cores
LIMIT = 300  # seconds

sys.path.insert(0, str(TREE / "tests" / "sim" / "cuda"))
import simcuda  # noqa: E402

TORCH = "2.15.0"


class Unavailable(Exception):
    """This kind of training can't be had here; the text says why."""


class Torches:
    """The interpreters, made when first asked for."""
    cuda = plain = None

    @classmethod
    def nccl(cls):
        if cls.cuda is None:
            try:
                cls.cuda = simcuda.Torch(TORCH)
            except (simcuda.Unavailable, OSError) as why:
                raise Unavailable(f"PyTorch {TORCH} on the stand-ins: {why}") from None
        return cls.cuda

    @classmethod
    def gloo(cls):
        if cls.plain is None:
            done = subprocess.run([TREE / "tools" / "torch-env", TORCH], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                raise Unavailable(f"PyTorch {TORCH}: {done.stderr.strip()[-300:]}")
            cls.plain = done.stdout.strip()
        return cls.plain


# ---- scripts

def script(environment, command, directory):
    lines = ["#!/bin/sh", f"cd {shlex.quote(str(directory))} || exit 125"]
    lines += [f"export {name}={shlex.quote(str(value))}" for name, value in environment.items()]
    lines += ["exec " + " ".join(shlex.quote(str(word)) for word in command)]
    return "\n".join(lines) + "\n"


def trainer(directory, options, environment=None):
    """The C trainer with these options."""
    words = options.split() if isinstance(options, str) else options
    work = directory / "work"
    work.mkdir(parents=True, exist_ok=True)
    return script(environment or {}, [TRAINER, "--dir", work, *words], directory)


def torch(directory, backend, job, environment, ranks=4):
    """A job of tests/torch/jobs on Gloo, or of tests/torch_cuda/jobs on NCCL."""
    out = directory / "out"
    out.mkdir(parents=True, exist_ok=True)
    common = {"OMP_NUM_THREADS": 1, "PYTHONDONTWRITEBYTECODE": 1, "PYTHONWARNINGS": "ignore",
              "TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo"}
    if backend == "torch, NCCL":
        made = Torches.nccl()
        python, where = made.python, "torch_cuda"
        common.update({"PYTHONPATH": made.farm, **DEVICE})
    else:
        python, where = Torches.gloo(), "torch"
    command = [sys.executable, TREE / "tests" / "torch" / "ranks.py", ranks, out, python,
               TREE / "tests" / where / "jobs" / f"{job}.py"]
    return script({**common, **environment}, command, directory)


# ---- an entry of the list

def when(fault, trainer_words):
    """Conditions of a fault in the words of the trainer or of the jobs."""
    words = ""
    if fault["every"] > 1:
        words += f":every={fault['every']}"
    if fault["first"]:
        words += f":from={fault['first']}"
    return words + (f":phase={fault['every'] // 2}" if trainer_words and fault["every"] > 1 else "")


def trainer_entry(entry, directory):
    fault, times = entry["fault"], entry["times"]
    extra = fault["size"] * sum(times.values()) * fault["every"]
    options = [f"--ranks={entry['ranks']}", f"--steps={entry['steps']}"]
    options += [f"--{stage}-us={us}" for stage, us in times.items()]
    options += [f"--{name}={entry[name]}" for name in ("jitter", "buckets", "launches", "seed")]
    options += ["--item"] if entry["item"] else []
    options += [f"--fault={fault['rank']}:{fault['stage']}:{round(extra)}{when(fault, True)}"]
    asynchronous = entry["backend"] != "trainer"
    return trainer(directory, options, ASYNCHRONOUS if asynchronous else None)


def sleeps(times, parts=1):
    return [f"*:{stage}:{ms / parts:g}" for stage, ms in times.items()]


def gloo_entry(entry, directory):
    fault, times = entry["fault"], entry["times"]
    step = sum(times.values()) + OVERHEAD_MS[entry["backend"]]
    job, environment, parts = entry["job"], {"STEPS": entry["steps"]}, 1
    words = sleeps(times)
    if job == "ddp_accum":  # input, forward and backward come once a micro-batch
        environment["ACC"] = 2
        words = sleeps({s: t / 2 if s in ("input", "forward", "backward") else t for s, t in times.items()})
        parts = 2 if fault["stage"] in ("input", "forward", "backward") else 1
    extra = fault["size"] * step * fault["every"] / parts
    words.append(f"{fault['rank']}:{fault['stage']}:{extra:.2f}{when(fault, False)}")
    return torch(directory, entry["backend"], job, {**environment, "FAULT": ",".join(words)})


def nccl_entry(entry, directory):
    fault, times = entry["fault"], entry["times"]
    environment, job = {"STEPS": entry["steps"], "ITEM": entry["item"], "PIN": 1}, entry["job"]
    if fault["stage"] == "device":
        factors = ["1"] * entry["ranks"]
        factors[fault["rank"]] = str(1 + fault["size"])
        environment.update(SIM_GEMM_US=2500, SIM_FACTOR=",".join(factors))
        return torch(directory, entry["backend"], job, environment)
    step = sum(times.values()) + OVERHEAD_MS[entry["backend"]]
    extra, words = fault["size"] * step * fault["every"], sleeps(times)
    environment["SIM_GEMM_US"] = HOST_GEMM_US
    if fault["stage"] == "h2d":
        environment.update(PIN=0, SIM_RULES=f"pageable@{fault['rank']}:"
                           f"+{round(1000 * extra / PAGEABLE_COPIES)}us")
    else:
        words.append(f"{fault['rank']}:{fault['stage']}:{extra:.2f}{when(fault, False)}")
    return torch(directory, entry["backend"], job, {**environment, "FAULT": ",".join(words)})


def entry_script(entry, directory):
    make = {"torch, Gloo": gloo_entry, "torch, NCCL": nccl_entry}.get(entry["backend"], trainer_entry)
    return make(entry, directory)


# ---- running

def clean_environment():
    """Nothing of an outer run, launcher or simulation."""
    return simcuda.plain_environment(LOCAL_RANK=None, LOCAL_WORLD_SIZE=None)


def run(text, directory):
    """Runs a script under `laggard run`; the run directory. Raises RuntimeError with the last lines if
    the training did not end well."""
    path, record, log = directory / "train", directory / "run", directory / "output"
    path.write_text(text)
    with open(log, "wb") as output:
        process = subprocess.Popen([LAGGARD, "run", "--quiet", "-o", record, "--", "sh", path],
                                   env=clean_environment(), stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, start_new_session=True)
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = f"ended after {LIMIT} s"
    path.unlink()
    if status != 0:
        texts = [log, *sorted(directory.glob("out/*.err"))]
        tail = " | ".join(t.read_text(errors="replace").strip()[-300:] for t in texts)
        raise RuntimeError(f"the training did not end well (status {status}): {tail}")
    return record
