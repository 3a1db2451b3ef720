"""What the run_* scenarios share: a place to work in, starting `laggard run`, counting checks."""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
LAGGARD = os.environ.get("LAGGARD", str(TREE / "build" / "laggard"))
LIBRARY = str(Path(LAGGARD).parent / "liblaggard.so")
TRAINER = str(TREE / "build" / "tests" / "trainer")
LIMIT = 60  # seconds after which something hangs

counts = {"passed": 0, "failed": 0, "skipped": 0}
folder = Path(tempfile.mkdtemp(prefix="laggard-run-"))


def check(name, holds, detail=""):
    counts["passed" if holds else "failed"] += 1
    if not holds:
        print(f"FAILED {name}: {str(detail)[:2000]}", flush=True)
    return bool(holds)


def equal(name, got, wanted):
    return check(name, got == wanted, f"got {got!r}, wanted {wanted!r}")


def skip(name, reason):
    counts["skipped"] += 1
    print(f"SKIPPED {name}: {reason}", flush=True)


def main(tests):
    """Runs the functions; one that raises has failed."""
    for test in tests:
        try:
            test()
        except Exception:  # pylint: disable=broad-except
            check(test.__name__, False, traceback.format_exc())
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    print(line + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


def environment(**more):
    """Nothing of an outer run or launcher; spools where this test can look at them."""
    env = {k: v for k, v in os.environ.items()
           if k != "LD_PRELOAD" and not k.startswith(("LAGGARD", "RANK", "WORLD_SIZE", "SLURM_"))}
    env["TMPDIR"] = str(place("tmp"))
    env.update(more)
    return {k: v for k, v in env.items() if v is not None}


def place(name):
    """A directory of this name in the test's folder."""
    path = folder / name
    path.mkdir(exist_ok=True)
    return path


def start(*command, options=("-q",), env=None, **more):
    """`laggard run options -- command`, in a process group of its own, not waited for."""
    more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
            "text": True, "cwd": place("work"), "start_new_session": True, **more}
    return subprocess.Popen([LAGGARD, "run", *options, "--", *map(str, command)],
                            env=environment() if env is None else env, **more)


def run(*command, **more):
    """(exit status as Popen has it, stdout, stderr)"""
    text = more.pop("input", None)
    if text is not None:
        more["stdin"] = subprocess.PIPE
    with start(*command, **more) as process:
        output, errors = process.communicate(text, timeout=LIMIT)
        return process.returncode, output, errors


def wait_until(holds, what="a condition"):
    for _ in range(LIMIT * 100):
        value = holds()
        if value:
            return value
        time.sleep(0.01)
    raise TimeoutError(f"waited in vain for {what}")


def field(pid, name):
    """A line of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split(":", 1)[1].strip()
    raise KeyError(name)


def state(pid):
    return field(pid, "State")[0]


def child_of(pid):
    """The process number of the only child, once there is one."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return int(wait_until(lambda: path.read_text().split(), "a child")[0])
