#!/usr/bin/env python3
"""run_frameworks.py [--list] [PATTERN...]: real training loops of transformers, accelerate and Lightning
on Gloo, all or those whose name contains a PATTERN, with known answers: a row for each step of the
optimizer, and the rank and stage that is slow. The frameworks are installed beside PyTorch
(build/frameworks). The closing line is "N passed, N failed, N skipped"; leaves with 1 if any failed. A
failed run's files are kept.
"""
import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "torch")]
import checks  # noqa: E402
from harness import TREE, Bench, Checks, Torch  # noqa: E402

TORCH = "2.15.0"
PACKAGES = ("transformers==5.24.0", "accelerate==1.15.0", "lightning==2.6.6")
SMALL_DEPENDENCIES = (
    "lightning-utilities", "pytorch-lightning==2.6.6", "torchmetrics", "huggingface_hub", "tokenizers",
    "safetensors", "regex", "tqdm", "pyyaml", "packaging", "psutil", "requests", "urllib3", "idna", "certifi",
    "charset_normalizer", "fsspec", "numpy", "filelock", "typing_extensions", "httpx", "httpcore", "anyio",
    "h11", "sniffio", "click", "hf-xet", "httpx2", "httpcore2", "truststore")
EVEN = "*:forward:12,*:backward:12"  # ranks that share a few cores keep pace
SHOWN = 6
SCENARIOS = []


class Frameworks(Bench):
    """A torch with the frameworks beside it."""

    def __init__(self, python, packages):
        super().__init__(Torch(python), TREE / "build")
        self.packages = packages

    def prepare(self, job, env):
        paths = os.pathsep.join(map(str, (self.packages, HERE / "jobs")))
        return super().prepare(job, {"PYTHONPATH": paths, "JOBS": HERE.parent / "torch" / "jobs",
                                     "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": 1, **env})

    def command(self, job, ranks, directory, launcher):
        return [self.torch.python, "-m", "torch.distributed.run", "--standalone",
                f"--nproc_per_node={ranks}", str(HERE / "jobs" / f"{job}.py")]


def install():
    """(interpreter, directory of the frameworks)"""
    python = subprocess.run([str(TREE / "tools" / "torch-env"), TORCH], text=True, check=True,
                            stdout=subprocess.PIPE).stdout.strip()
    place = Path(os.environ.get("LAGGARD_TORCH_CACHE", TREE / "build")) / "frameworks"
    ready = place / ".ready"
    if not ready.exists() or ready.read_text() != repr(PACKAGES):
        # without what they depend on: that is torch again, with gigabytes of libraries for GPUs
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target",
                        str(place), *PACKAGES, *SMALL_DEPENDENCIES], check=True)
        ready.write_text(repr(PACKAGES))
    return python, place


def scenario(name):
    def register(function):
        SCENARIOS.append((name, function))
        return function
    return register


# --- what must hold

def healthy(c, run, ranks, steps):
    """A row for each step of the optimizer, at the same place in the order of collectives."""
    checks.ended_well(c, run, ranks)
    c.equal(sorted(run.rows), list(range(ranks)), "ranks with rows")
    for rank in range(ranks):
        c.equal(len(run.truth[rank]), steps, f"rank {rank}: the job's own count of steps")
        c.equal(len(run.rows.get(rank, [])), steps, f"rank {rank}: rows")
        checks.partition(c, run, rank)
    checks.aligned(c, run, ranks)


def named(c, run, kinds, rank, stage):
    v = run.report["verdict"]
    c.that(v["kind"] in kinds, f"verdict {v['kind']}: {v['sentence']}")
    c.equal((v["rank"], v["stage"]), (rank, stage), f"rank and stage ({v['sentence']})")


def nobody(c, run):
    v = run.report["verdict"]
    c.that(v["rank"] is None and "STRAGGLER" not in v["kind"], f"verdict {v['kind']}: {v['sentence']}")


def balanced(name, job, **env):
    @scenario(f"{name}: nobody slow")
    def run_balanced(bench, c):
        run = bench.run(job, 2, env={"STEPS": 40, "FAULT": EVEN, **env}, limit=240)
        healthy(c, run, 2, 40)
        nobody(c, run)


def slow(name, job, stage, kinds, where=None, **env):
    @scenario(f"{name}: slow {stage} on rank 1")
    def run_slow(bench, c):
        run = bench.run(job, 2, env={"STEPS": 40, "FAULT": f"{EVEN},1:{stage}:40", **env}, limit=240)
        healthy(c, run, 2, 40)
        named(c, run, kinds, 1, where or stage)


FORWARD = ("COMPUTE_STRAGGLER",)
BACKWARD = ("BACKWARD_STRAGGLER", "COMPUTE_STRAGGLER")
for framework, script in (("transformers", "hf_trainer"), ("accelerate", "accelerate_loop"),
                          ("Lightning", "lightning_ddp")):
    balanced(framework, script)
    balanced(f"{framework}, two micro-batches a step", script, ACC=2)
    balanced(f"{framework}, two loader workers", script, WORKERS=2)
    slow(framework, script, "input", ("INPUT_STRAGGLER",))
    slow(framework, script, "forward", FORWARD)
    slow(framework, script, "backward", BACKWARD)
    slow(framework, script, "host", ("HOST_STRAGGLER",))
    slow(f"{framework}, two micro-batches a step", script, "forward", FORWARD, ACC=2)
balanced("transformers, evaluation each ten steps", "hf_trainer", EVAL=10)
balanced("Lightning, validation each ten batches", "lightning_ddp", EVAL=10)
slow("accelerate", "accelerate_loop", "optimizer", ("OPTIMIZER_STRAGGLER",))


# --- running

def one(bench, name, function):
    """Runs a scenario; True if all held."""
    begun, c, trouble = time.monotonic(), Checks(), []
    try:
        function(bench, c)
    except (RuntimeError, OSError, LookupError, TypeError, ValueError, subprocess.SubprocessError) as error:
        trouble.append(f"{type(error).__name__}: {error}")
    trouble += c.failures
    print(f"{'FAIL' if trouble else 'ok  '}  {name} ({c.count} checks, {time.monotonic() - begun:.0f} s)", flush=True)
    for text in trouble[:SHOWN]:
        print(f"      {text}")
    if len(trouble) > SHOWN:
        print(f"      and {len(trouble) - SHOWN} more")
    return not trouble


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    wanted = [(n, f) for n, f in SCENARIOS if not options.patterns or any(p in n for p in options.patterns)]
    if options.list:
        print("\n".join(name for name, _ in wanted))
        return 0
    bench = Frameworks(*install())
    results = [one(bench, name, function) for name, function in wanted]
    if all(results):
        bench.clean()
    else:
        print(f"      files of the runs: {bench.scratch}")
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
