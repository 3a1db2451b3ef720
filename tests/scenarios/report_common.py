"""What the report_* scenarios share: rows with a known answer, running laggard, counting checks.

Rows are made as a data-parallel training would leave them: each rank has its own work, all leave the
gradient sync of backward together, so the early ones wait there (backward_sync_ns).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
LAGGARD = os.environ.get("LAGGARD", str(TREE / "build" / "laggard"))
MS = 1_000_000
STAGES = ("input_wait", "h2d", "forward", "backward", "optimizer", "other")
# ms a step; compute is 85 % of it, so that nothing is conspicuous
BALANCED = {"input_wait": 5, "h2d": 3, "forward": 30, "backward": 45, "optimizer": 10, "other": 7}

counts = {"passed": 0, "failed": 0, "skipped": 0}
folder = Path(tempfile.mkdtemp(prefix="laggard-report-"))


def check(name, holds, detail=""):
    counts["passed" if holds else "failed"] += 1
    if not holds:
        print(f"FAILED {name}: {str(detail)[:2000]}", flush=True)
    return bool(holds)


def skip(name, reason):
    counts["skipped"] += 1
    print(f"SKIPPED {name}: {reason}", flush=True)


def finish():
    shutil.rmtree(folder, ignore_errors=True)
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    print(line + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    return 1 if counts["failed"] or not counts["passed"] else 0


def laggard(*arguments, text="", **options):
    """(exit status, stdout, stderr)"""
    done = subprocess.run([LAGGARD, *map(str, arguments)], input=text, capture_output=True,
                          text=True, timeout=120, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def rows(ranks, steps, extra=None, **base):
    """Rows of `ranks` ranks in `steps` steps. extra(rank, step) gives {stage: more ms}."""
    for step in range(steps):
        work = []
        for rank in range(ranks):
            stages = {**BALANCED, **base}
            for stage, more in (extra(rank, step) if extra else {}).items():
                stages[stage] += more
            work.append({stage: round(ms * MS) for stage, ms in stages.items()})
        latest = max(sum(stages.values()) for stages in work)
        for rank, stages in enumerate(work):
            wait = latest - sum(stages.values())
            stages["backward"] += wait
            yield {"rank": rank, "step": step, "dur_ns": sum(stages.values()),
                   "collective_seq": 3 * (step + 1), "flags": 0,
                   **{f"{stage}_ns": stages[stage] for stage in STAGES},
                   **{f"{stage}_sync_ns": 0 for stage in STAGES}, "backward_sync_ns": wait}


def lines(objects):
    return "".join(json.dumps(o) + "\n" for o in objects)


def make(name, objects):
    """Imports the objects; the run directory."""
    run = folder / name
    status, out, err = laggard("import", "-", "-o", run, text=lines(objects))
    check(f"{name}: import", status == 0 and out == "" and err == "", (status, out, err))
    return run


def report(run, *arguments):
    """The report as JSON, None when there is none."""
    status, out, err = laggard("report", run, "--format", "json", *arguments)
    if not check(f"{run.name}: report", status == 0 and err == "", (status, err)):
        return None
    return json.loads(out)


def validator():
    """A function that gives the faults of a report by the schema; None when jsonschema can't be had:
    it is used where it is installed, else put into a virtual environment under build/."""
    try:
        import jsonschema
    except ImportError:
        home = TREE / "build" / "jsonschema"
        if not any(home.glob("lib/python*/site-packages/jsonschema")):
            shutil.rmtree(home, ignore_errors=True)
            for command in ([sys.executable, "-m", "venv", home],
                            [home / "bin" / "pip", "install", "-q", "jsonschema"]):
                if subprocess.run(command, capture_output=True, check=False).returncode:
                    return None
        sys.path.append(str(next(home.glob("lib/python*/site-packages"))))
        import jsonschema
    schema = json.loads((TREE / "schema" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator(schema)
    return lambda value: [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}"
                          for e in checker.iter_errors(value)]
