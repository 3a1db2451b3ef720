"""Runs of the test trainer, bare or traced, and what came of them. For the scenarios trainer_*."""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
BUILD = TREE / "build"
TRAINER = BUILD / "tests" / "trainer"
LAGGARD = BUILD / "laggard"
LIBRARY = BUILD / "liblaggard.so"
DUMP = BUILD / "tests" / "spool-dump"
LIMIT = 120  # seconds after which a run hangs
STAGES = ("input_wait", "h2d", "forward", "backward", "optimizer", "other")

# a training reader's environment must not look like a rank's, nor traced already
CLEAN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LD_PRELOAD")


def environment(**more):
    env = {k: v for k, v in os.environ.items()
           if k not in CLEAN and not k.startswith(("LAGGARD_", "SIM_", "SLURM_", "PMI"))}
    env.update(more)
    return env


class Run:
    """One run of the trainer in a directory of its own, removed by close()."""

    def __init__(self, options, how="bare"):
        self.directory = Path(tempfile.mkdtemp(prefix="laggard-trainer-"))
        self.run_dir = self.directory / "run"
        self.truth_dir = self.directory / "truth"
        self.truth_dir.mkdir()
        work = self.directory / "work"
        work.mkdir()
        command = [str(TRAINER), *options.split(), "--truth", str(self.truth_dir), "--dir", str(work)]
        env = environment(TMPDIR=str(self.directory))
        if how == "preload":
            env.update(LD_PRELOAD=str(LIBRARY), LAGGARD_DIR=str(self.run_dir))
        elif how == "laggard":
            command = [str(LAGGARD), "run", "--quiet", "-o", str(self.run_dir), "--", *command]
        self.process = subprocess.Popen(command, env=env, cwd=work, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self.output = self.errors = None

    def wait(self):
        try:
            self.output, self.errors = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.kill_all()
            self.output, self.errors = self.process.communicate()
            self.errors += "\nthe run hung"
        return self

    def kill_all(self):
        """SIGKILL to every process of the run at once, the recorder included."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    @property
    def status(self):
        return self.process.returncode

    def truth(self):
        """rank -> its lines, in order; a line that a kill cut short is none"""
        result = {}
        for path in self.truth_dir.glob("rank-*.jsonl"):
            lines = path.read_text().split("\n")[:-1]
            result[int(path.stem[5:])] = [json.loads(line) for line in lines]
        return result

    def steps_done(self):
        """steps that the slowest rank has finished"""
        paths = list(self.truth_dir.glob("rank-*.jsonl"))
        return min((p.read_text().count("\n") for p in paths), default=0)

    def spools(self):
        """(header, rows) of each spool of a preload run; of two rows with one step the later counts"""
        result = []
        for path in sorted(self.run_dir.rglob("*.spool")):
            lines = subprocess.run([str(DUMP), str(path)], check=True, capture_output=True,
                                   text=True).stdout.splitlines()
            rows = {}
            for row in map(json.loads, lines[1:]):
                if row["from"] != "provisional" or row["step"] not in rows:
                    rows[row["step"]] = row
            result.append((json.loads(lines[0]), [rows[k] for k in sorted(rows)]))
        return result

    def ranks(self):
        """rank -> rows of a preload run"""
        return {header["rank"]: rows for header, rows in self.spools()}

    def laggard(self, *arguments):
        return subprocess.run([str(LAGGARD), *arguments], capture_output=True, text=True, timeout=LIMIT,
                              env=environment())

    def report(self):
        result = self.laggard("report", str(self.run_dir), "--format", "json")
        if result.returncode != 0:
            raise AssertionError(f"laggard report: {result.returncode}: {result.stderr}")
        return json.loads(result.stdout)

    def close(self):
        self.kill_all()
        shutil.rmtree(self.directory, ignore_errors=True)


def run(options, how="bare"):
    return Run(options, how).wait()


def wait_until(condition, seconds=LIMIT):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.002)


# ---- rows

def median(rows, *names):
    """of the sum of some columns (a leading - subtracts), over rows; without the first one"""
    def value(row):
        return sum(-row[n[1:]] if n.startswith("-") else row[n] for n in names)
    return statistics.median(value(r) for r in rows[1:])


def check_rows(rows, steps):
    """one row an iteration, the parts of each sum to its duration, each begins where one ended"""
    assert len(rows) == steps, f"{len(rows)} rows for {steps} steps"
    assert [r["step"] for r in rows] == list(range(steps)), "steps are not numbered 0, 1, ..."
    for r in rows:
        parts = sum(r[s + "_ns"] or 0 for s in STAGES) + (r["compute_ns"] or 0)
        assert parts == r["dur_ns"], f"step {r['step']}: parts {parts}, duration {r['dur_ns']}"
        split = r["forward_ns"] is not None and r["backward_ns"] is not None
        assert split == (r["compute_ns"] is None), f"step {r['step']}: split and compute disagree"
    for a, b in zip(rows, rows[1:]):
        assert a["start_ns"] + a["dur_ns"] == b["start_ns"], f"a gap after step {a['step']}"


def close_to(value, wanted, share, what):
    assert abs(value - wanted) <= share * wanted, f"{what}: {value / 1e6:.2f} ms, not {wanted / 1e6:.2f}"


# ---- checks

class Skipped(Exception):
    """Raised by a check that can't be made here."""


class Checks:
    """Counts and names what failed; a check is a function that raises."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, function, *arguments):
        try:
            function(*arguments)
        except Skipped as e:
            self.skip(name, e)
        except Exception as e:  # whatever a check raises is its failure
            self.failed += 1
            print(f"FAIL {name}: {type(e).__name__}: {e}")
        else:
            self.passed += 1

    def skip(self, name, why):
        self.skipped += 1
        print(f"SKIP {name}: {why}")

    def end(self):
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        print(f"{self.passed} passed, {self.failed} failed{skipped}")
        sys.exit(1 if self.failed else 0)
