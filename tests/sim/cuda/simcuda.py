"""What tests on the asynchronous stand-ins share: a real PyTorch on them, ranks, counters.

    torch = Torch("2.15.0")                     # makes environment and farm where they are missing
    ranks = torch.run(2, "job.py", SIM_GEMM_US=1000, TORCH_DIST_USE_NCCL2=0)
    [(status, output), ...] by rank
"""
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[2]
BUILD = TREE / "build" / "tests" / "sim-cuda"
CALLERS = ("direct", "through", "own")  # enum sim_caller


def plain_environment(**more):
    """Nothing of an outer run, launcher or simulation; None takes a variable away."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("SIM_", "LAGGARD", "RANK", "WORLD_SIZE", "SLURM_", "LD_PRELOAD"))}
    env.update({k: str(v) for k, v in more.items() if v is not None})
    return env


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def counters(directory):
    """{pid: {function: {"direct": n, ..., "direct*": n, ...}}}, those with * while a capture was
    open, of the processes that had SIM_COUNTERS=directory; readable while they run and however they
    ended."""
    result = {}
    for path in Path(directory).iterdir():
        functions = {}
        for name, *calls in struct.iter_unpack("<72s6Q8x", path.read_bytes()):
            if name[0]:
                keys = list(CALLERS) + [c + "*" for c in CALLERS]
                functions[name.split(b"\0")[0].decode()] = dict(zip(keys, calls))
        result[int(path.name)] = functions
    return result


class Unavailable(Exception):
    """This PyTorch can't be had here; the text says why."""


class Torch:
    """A PyTorch CUDA build on the stand-ins."""

    def __init__(self, version):
        self.version = version
        self.farm = self._made_by(HERE / "farm")
        self.python = self._made_by(TREE / "tools" / "torch-env")

    def _made_by(self, tool):
        result = subprocess.run([tool, self.version], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode:
            raise Unavailable(result.stderr.strip()[-500:])
        return result.stdout.strip()

    def environment(self, **more):
        return plain_environment(**{"PYTHONPATH": self.farm, "OMP_NUM_THREADS": 1, **more})

    def start(self, ranks, *command, **env):
        """Popen objects with the environment that torchrun gives its processes; output in files."""
        launch = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": ranks,
                  "LOCAL_WORLD_SIZE": ranks}
        processes = []
        for rank in range(ranks):
            out = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
            process = subprocess.Popen(
                [self.python, *map(str, command)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
                env=self.environment(**launch, RANK=rank, LOCAL_RANK=rank, **env))
            process.output_file = out
            processes.append(process)
        return processes

    def run(self, ranks, *command, limit=120, **env):
        """[(status, output)] by rank; after `limit` seconds all are killed, with status 124."""
        return finish(self.start(ranks, *command, **env), limit)


def finish(processes, limit):
    results = []
    for process in processes:
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            limit, status = 0, 124
            process.kill()
            process.wait()
        process.output_file.seek(0)
        results.append((status, process.output_file.read()))
        process.output_file.close()
    return results


class Tally:
    """Checks of one scenario and its closing line."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, holds, detail=""):
        if holds:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {name}: {str(detail)[-2000:]}", flush=True)
        return bool(holds)

    def skip(self, name, why):
        self.skipped += 1
        print(f"SKIPPED {name}: {why}", flush=True)

    def done(self):
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        print(f"{self.passed} passed, {self.failed} failed{skipped}")
        if not self.passed and not self.failed and self.skipped:
            sys.exit(77)
        sys.exit(1 if self.failed or not self.passed else 0)
