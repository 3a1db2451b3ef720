"""Runs the jobs of this directory bare or under `laggard run`, and collects what came out: exit
status, output, the jobs' own truth, and laggard's rows and report."""
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
STAGES = ("input_wait", "h2d", "forward", "backward", "optimizer", "other")


class Skip(Exception):
    """This scenario can't run here; the text says why."""


class Checks:
    """Collects what did not hold, so that one run tells all that is wrong."""

    def __init__(self):
        self.failures, self.count = [], 0

    def that(self, holds, text):
        self.count += 1
        if not holds:
            self.failures.append(text)
        return bool(holds)

    def equal(self, got, expected, what):
        return self.that(got == expected, f"{what}: {got!r}, expected {expected!r}")

    def near(self, got, expected, tolerance, what):
        return self.that(got is not None and abs(got - expected) <= tolerance,
                         f"{what}: {got}, expected {expected} +- {tolerance}")


@dataclass
class Run:
    """One finished run of a job."""
    directory: Path
    status: int = 0
    seconds: float = 0.0
    out: dict = field(default_factory=dict)      # rank -> text; -1: the command itself
    err: dict = field(default_factory=dict)
    header: dict = field(default_factory=dict)   # rank -> first line of the truth
    truth: dict = field(default_factory=dict)    # rank -> the true iterations
    final: dict = field(default_factory=dict)    # rank -> last line, absent if it never came
    rows: dict = field(default_factory=dict)     # rank -> laggard's rows
    report: dict = field(default_factory=dict)

    @property
    def record(self):
        return self.directory / "run"


def own(row, stage):
    """Time of the stage without waiting in collectives, nanoseconds."""
    return (row[f"{stage}_ns"] or 0) - (row[f"{stage}_sync_ns"] or 0)


def sync(row):
    return sum(row[f"{stage}_sync_ns"] or 0 for stage in STAGES)


class Torch:
    """An interpreter with PyTorch."""

    def __init__(self, python):
        self.python = os.path.abspath(python)  # a link in an environment: do not follow it
        text = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        self.name = text.split("+")[0].split("a")[0]
        self.version = tuple(int(x) for x in self.name.split(".")[:2])


class Bench:
    """Where scenarios run: one torch, one build of laggard, one scratch directory."""

    def __init__(self, torch, build):
        self.torch, self.laggard = torch, str(build / "laggard")
        self.library = build / "liblaggard.so"
        self.scratch = Path(tempfile.mkdtemp(prefix="laggard-torch-"))
        self.number = 0

    def clean(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    # --- starting

    def prepare(self, job, env):
        self.number += 1
        directory = self.scratch / f"{self.number}-{job}"
        (directory / "out").mkdir(parents=True)
        (directory / "truth").mkdir()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LAGGARD")}
        clean.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONDONTWRITEBYTECODE="1",
                     TRUTH=str(directory / "truth"), TORCH_CPP_LOG_LEVEL="ERROR",
                     PYTHONWARNINGS="ignore", **{k: str(v) for k, v in env.items()})
        return directory, clean

    def command(self, job, ranks, directory, launcher):
        script = [self.torch.python, str(HERE / "jobs" / f"{job}.py")]
        if launcher == "torchrun" and self.torch.version < (2, 0):
            launcher = "ranks"  # torchrun of 1.13 dies at its start under Python 3.11, traced or not
        if launcher == "ranks":
            return ["python3", str(HERE / "ranks.py"), str(ranks), str(directory / "out"), *script]
        if launcher == "torchrun":
            return [self.torch.python, "-m", "torch.distributed.run", "--standalone",
                    f"--nproc_per_node={ranks}", script[1]]
        return script

    def start(self, job, ranks=2, traced=True, launcher="ranks", env=None):
        """Starts a job in a session of its own; gives (process, its directory)."""
        directory, environment = self.prepare(job, env or {})
        command = self.command(job, ranks, directory, launcher)
        if traced:
            command = [self.laggard, "run", "-o", str(directory / "run"), "--", *command]
        with open(directory / "command.out", "wb") as out, \
                open(directory / "command.err", "wb") as err:
            process = subprocess.Popen(command, env=environment, cwd=directory, stdout=out,
                                       stderr=err, stdin=subprocess.DEVNULL,
                                       start_new_session=True)
        return process, directory

    def run(self, job, ranks=2, traced=True, launcher="ranks", env=None, limit=120):
        begun = time.monotonic()
        process, directory = self.start(job, ranks, traced, launcher, env)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            kill_session(process.pid)
            process.wait()
            raise RuntimeError(f"{job} did not end within {limit} s ({directory})") from None
        result = self.collect(directory, traced)
        result.status, result.seconds = process.returncode, time.monotonic() - begun
        return result

    # --- collecting

    def collect(self, directory, traced):
        result = Run(directory)
        for name, texts in (("out", result.out), ("err", result.err)):
            texts[-1] = (directory / f"command.{name}").read_text(errors="replace")
            for path in (directory / "out").glob(f"*.{name}"):
                texts[int(path.stem)] = path.read_text(errors="replace")
        for path in sorted((directory / "truth").glob("*.jsonl")):
            rank, lines = int(path.stem), []
            for line in path.read_text().splitlines():
                try:
                    lines.append(json.loads(line))
                except ValueError:  # the last line of a killed rank
                    pass
            result.header[rank] = lines[0]
            result.truth[rank] = [line for line in lines if "i" in line]
            result.final.update({rank: line for line in lines if line.get("done")})
        if traced:
            for row in self.sql(result.record, "SELECT * FROM step ORDER BY rank, step"):
                result.rows.setdefault(row["rank"], []).append(row)
            result.report = json.loads(self.tool("report", result.record, "--format", "json"))
        return result

    def tool(self, *arguments):
        done = subprocess.run([self.laggard, *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                              timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"laggard {' '.join(map(str, arguments))}: status "
                               f"{done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def sql(self, run, query):
        text = self.tool("sql", run, query, "--format", "json")
        return json.loads(text) if text.strip() else []


def kill_session(leader):
    """SIGKILL to all processes of the session that the process leads."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.getsid(int(entry)) == leader:
                    os.kill(int(entry), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass


def wait_for_iterations(directory, ranks, count, limit=60):
    """Waits until every rank has `count` lines of truth; gives the pids of the ranks."""
    until = time.monotonic() + limit
    paths = [directory / "truth" / f"{r}.jsonl" for r in range(ranks)]
    while time.monotonic() < until:
        if all(p.exists() and p.read_text().count("\n") > count for p in paths):
            return [json.loads(p.read_text().splitlines()[0])["pid"] for p in paths]
        time.sleep(0.02)
    raise RuntimeError(f"the job did not reach iteration {count} within {limit} s ({directory})")


def ms(ns):
    return ns / 1e6


def seeded(name):
    """Random moments that are the same for everybody and can be repeated with LAGGARD_SEED."""
    return random.Random(f"{os.environ.get('LAGGARD_SEED', '1')}/{name}")


__all__ = ["Bench", "Checks", "Run", "Skip", "STAGES", "Torch", "TREE", "kill_session", "median",
           "ms", "own", "seeded", "sync", "wait_for_iterations"]
