"""Runs the jobs of this directory on the asynchronous stand-in CUDA libraries (tests/sim/cuda), with the
harness of tests/torch; adds what the stand-ins counted."""
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "torch"), str(HERE.parent / "sim" / "cuda")]

import harness  # noqa: E402
import simcuda  # noqa: E402
from harness import Skip, ms  # noqa: E402

# only gemms and collectives take time, so that what a step must last can be counted
EXACT = {"SIM_GEMM_US": 1000, "SIM_NCCL_US": 2000, "SIM_NCCL_MBPS": 0, "SIM_KERNEL_US": 0,
         "SIM_COPY_US": 0, "SIM_COPY_MBPS": 0, "SIM_D2D_MBPS": 0, "SIM_QUEUE_DEPTH": 0}
GEMMS = ("cublasLtMatmul", "cublasGemmEx", "cublasSgemm_v2", "cublasHgemm", "cublasGemmStridedBatchedEx",
         "cublasSgemmStridedBatched")
LAUNCHES = ("cudaLaunchKernel", "__cudaLaunchKernel", "cudaLaunchKernelExC", "cudaGraphLaunch",
            "cudaLaunchCooperativeKernel")


class Flavour:
    """A torch on the stand-ins and the NCCL backend that it uses."""

    def __init__(self, version, backend):
        made = simcuda.Torch(version)
        self.python, self.farm, self.backend = made.python, made.farm, backend
        self.version = tuple(int(x) for x in version.split(".")[:2])
        self.name = f"{version} {backend}"


class CudaBench(harness.Bench):
    """Where the scenarios of one flavour run."""

    def prepare(self, job, env):
        self.number += 1
        directory = self.scratch / f"{self.number}-{job}"
        for part in ("out", "truth", "counters"):
            (directory / part).mkdir(parents=True)
        clean = simcuda.plain_environment(
            OMP_NUM_THREADS=1, PYTHONDONTWRITEBYTECODE=1, PYTHONPATH=self.torch.farm,
            PYTHONWARNINGS="ignore", TORCH_CPP_LOG_LEVEL="ERROR", TRUTH=directory / "truth",
            SIM_COUNTERS=directory / "counters",
            TORCH_DIST_USE_NCCL2=int(self.torch.backend == "nccl2"), **{**EXACT, **env})
        return directory, clean

    def command(self, job, ranks, directory, launcher):
        script = [self.torch.python, str(HERE / "jobs" / f"{job}.py")]
        if launcher == "ranks":
            return [sys.executable, str(HERE.parent / "torch" / "ranks.py"), str(ranks),
                    str(directory / "out"), *script]
        return script

    def collect(self, directory, traced):
        run = super().collect(directory, traced)
        by_pid = simcuda.counters(directory / "counters")
        run.calls = {rank: by_pid.get(header["pid"], {}) for rank, header in run.header.items()}
        return run

    def program(self, *command, env=None, traced=True, limit=60):
        """A C program with its ranks; gives (status, stdout, stderr, report or None)."""
        self.number += 1
        directory = self.scratch / f"{self.number}-program"
        directory.mkdir()
        line = [str(c) for c in command]
        if traced:
            line = [self.laggard, "run", "--quiet", "-o", str(directory / "run"), "--", *line]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=limit, check=False,
                              env=simcuda.plain_environment(**(env or {})))
        report = None
        if traced:
            report = json.loads(self.tool("report", directory / "run", "--format", "json"))
        return done.returncode, done.stdout, done.stderr, report


def calls(run, rank, names, callers=("direct", "through")):
    """How often the program called any of the functions, whether or not a capture was open."""
    names = [names] if isinstance(names, str) else names
    return sum(run.calls[rank].get(name, {}).get(caller + star, 0)
               for name in names for caller in callers for star in ("", "*"))


def gpu_sync(row):
    parts = [row[f"gpu_{stage}_sync_ns"] for stage in harness.STAGES]
    return None if all(p is None for p in parts) else sum(p or 0 for p in parts)


__all__ = ["CudaBench", "EXACT", "Flavour", "GEMMS", "LAUNCHES", "Skip", "calls", "gpu_sync", "ms",
           "simcuda"]
