#!/usr/bin/env python3
"""run_torch.py [--quick] [--list] [--torch VERSION|debian]... [--python PATH]... [PATTERN...]

Runs the scenarios of real PyTorch trainings against build/laggard, all or those whose name contains
a PATTERN, on each torch named (tools/torch-env makes it; 2.15.0 if none is). --quick: the subset
for every `make test`. Prints one line a scenario, and a closing line "N passed, N failed, N skipped";
leaves with 1 if any failed. A failed run's files are kept.
"""
import argparse
import subprocess
import sys
import time
from pathlib import Path

from harness import TREE, Bench, Checks, Skip, Torch
from scenarios import SCENARIOS

SHOWN = 6  # failures printed a scenario


def one(bench, name, since, function):
    """Runs a scenario; gives 'passed', 'failed' or 'skipped'."""
    begun, c, trouble = time.monotonic(), Checks(), []
    try:
        if bench.torch.version < since:
            raise Skip(f"needs torch {'.'.join(map(str, since))}")
        function(bench, c)
    except Skip as reason:
        print(f"SKIP  torch {bench.torch.name}: {name}: {reason}", flush=True)
        return "skipped"
    except (RuntimeError, OSError, LookupError, TypeError, ValueError,
            subprocess.TimeoutExpired) as error:
        trouble.append(f"{type(error).__name__}: {error}")
    trouble += c.failures
    took = f"({c.count} checks, {time.monotonic() - begun:.0f} s)"
    print(f"{'FAIL' if trouble else 'ok  '}  torch {bench.torch.name}: {name} {took}", flush=True)
    for text in trouble[:SHOWN]:
        print(f"      {text}")
    if len(trouble) > SHOWN:
        print(f"      and {len(trouble) - SHOWN} more")
    return "failed" if trouble else "passed"


def interpreter(version):
    done = subprocess.run([str(TREE / "tools" / "torch-env"), version], text=True,
                          stdout=subprocess.PIPE, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def on_torch(python, build, wanted):
    bench = Bench(Torch(python), build)
    results = [one(bench, *item) for item in wanted]
    if "failed" in results:
        print(f"      files of the runs: {bench.scratch}")
    else:
        bench.clean()
    return results


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--torch", action="append", default=[], metavar="VERSION|debian")
    parser.add_argument("--python", action="append", default=[], help="interpreter with torch")
    parser.add_argument("--build", default=TREE / "build", type=Path)
    parser.add_argument("patterns", nargs="*")
    return parser.parse_args()


def main():
    options = arguments()
    wanted = [(name, since, function) for name, quick, since, function in SCENARIOS
              if (quick or not options.quick)
              and (not options.patterns or any(p in name for p in options.patterns))]
    if options.list:
        print("\n".join(name for name, _, _ in wanted))
        return 0
    for file in ("laggard", "liblaggard.so"):
        if not (options.build / file).exists():
            sys.exit(f"run_torch: {options.build / file} is not built; run make")
    if not wanted:
        sys.exit("run_torch: no scenario has such a name")
    results = []
    for version in options.torch or ([] if options.python else ["2.15.0"]):
        python = interpreter(version)
        if python:
            options.python.append(python)
        else:
            print(f"FAIL  torch {version}: can't be installed here", flush=True)
            results.append("failed")
    for python in options.python:
        results += on_torch(python, options.build.resolve(), wanted)
    print(", ".join(f"{results.count(r)} {r}" for r in ("passed", "failed", "skipped")))
    return 1 if "failed" in results else 0


if __name__ == "__main__":
    sys.exit(main())
