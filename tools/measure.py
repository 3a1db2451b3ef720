"""measure.py: runs tools/bench_calls.c bare and under the library. Shared by tools/bench and
tests/scenarios/instructions.

WAYS: how the program runs. `inert`: LAGGARD_DISABLE=1; `calls`: recorded, stages from CUDA and NCCL calls
alone; `torch`: recorded, stages from PyTorch's probes (a PyTorch that does nothing, tests/victims).
`added` is what the library adds: the same program under it minus bare.
"""
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
LIBRARY = TREE / "build" / "liblaggard.so"
PROGRAM = TREE / "build" / "tools" / "bench" / "bench-calls"
TORCH = TREE / "build" / "tests" / "victims" / "torch" / "libtorch_python.so"
WAYS = ("inert", "calls", "torch")
LIMIT = 300


def environment(way, directory):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("LAGGARD")}
    if way == "inert":
        env["LAGGARD_DISABLE"] = "1"
    if way:
        env.update(LD_PRELOAD=str(LIBRARY), LAGGARD_DIR=directory)
    return env


def run(way, torch, steps, *around):
    """What the program prints; under the library unless `way` is None; `{dir}` is a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="laggard-bench-") as directory:
        around = [a.format(dir=directory) for a in around]
        command = [*around, str(PROGRAM), str(steps)] + ([str(TORCH)] if torch else [])
        out = subprocess.run(command, env=environment(way, f"{directory}/run"), check=True, text=True,
                             stdout=subprocess.PIPE, timeout=LIMIT).stdout
        counts = {}
        parts = sorted(Path(directory).glob("counts.*"), key=lambda p: int(p.suffix[1:]))
        for part in parts:
            text = part.read_text(errors="replace")
            name = re.search(r"^desc: Trigger: Client Request: (\w+)\*(\d+)$", text, re.M)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.M)
            if name and total:
                counts[name[1]] = int(total[1]) / int(name[2])
        return out, counts


def nanoseconds(way, torch, steps=300):
    out, _ = run(way, torch, steps)
    return {name: float(ns) for name, ns in map(str.split, out.splitlines())}


def why_no_instructions():
    """None, or why instructions can't be counted here."""
    if not shutil.which("valgrind"):
        return "valgrind is not installed"
    if not run(None, False, 1, *CALLGRIND)[1]:
        return "built without valgrind's headers"
    return None


CALLGRIND = ("valgrind", "-q", "--tool=callgrind", "--collect-atstart=no",
             "--callgrind-out-file={dir}/counts")


def instructions(way, torch, steps=10):
    return run(way, torch, steps, *CALLGRIND)[1]


def added(measured, way):
    """{name: what the library adds to a call in that way}; `measured` is one of the two above."""
    torch = way == "torch"
    bare, traced = measured(None, torch), measured(way, torch)
    return {name: traced[name] - bare[name] for name in bare}
